"""Averages with neighbors over MPI: the formulas on every graph, and ranks that leave."""

from __future__ import annotations

import time

import numpy as np
import pytest
from mpi4py import MPI
from neighbor_oracle import d_psgd, push_sum, random_graph
from oracle import LIMIT
from shared_oracle import of_this_rank

import pycollectives as pc
from pycollectives import topology

pytestmark = pytest.mark.one_communicator

WORLD = MPI.COMM_WORLD
P = WORLD.size
FAMILIES = [topology.ring, topology.exponential, topology.star, topology.complete, topology.one_peer_exponential]


def models_of(count, dtype, seed=0):
    rng = np.random.default_rng([seed, P])
    return [rng.standard_normal(count).astype(dtype) for _ in range(P)]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
@pytest.mark.parametrize(("count", "dtype"), [(0, "f4"), (5, "f8"), (70_000, "f2"), (500_000, "f4")])
def test_neighbor_averaging(comm, family, count, dtype):
    """Bit for bit, with ranks that leave after different numbers of steps."""
    models, graph = models_of(count, dtype), family(P)
    steps_of = [3 + rank % 3 for rank in range(P)]
    expected = of_this_rank(lambda slices: d_psgd(slices, graph, "uniform", steps_of), models)
    w = models[comm.rank].copy()
    with comm.neighbor_averaging(w, topology=graph, weights="uniform") as na:
        for want in expected:
            request = na.start(w)
            request.wait(out=w, timeout=LIMIT)
            np.testing.assert_array_equal(w, want)


@pytest.mark.parametrize("overlap", [0, 1])
@pytest.mark.parametrize("count", [3, 200_000])
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_push_sum(comm, family, count, overlap):
    """Models and weights after each step; the mass of all ranks in the end, with ranks that leave."""
    models, graph = models_of(count, "f8"), family(P)
    steps_of = [3 + rank % 3 for rank in range(P)]

    def oracle(slices):
        history, finals = push_sum(slices, graph, steps_of, overlap=overlap)
        np.testing.assert_allclose(sum(finals), sum(np.append(model, 1.0) for model in slices), atol=1e-10)
        return [[*steps, final] for steps, final in zip(history, finals, strict=True)]

    *expected, expected_final = of_this_rank(oracle, models, tail=1)
    w = models[comm.rank].copy()
    with comm.push_sum(w, topology=graph, overlap=overlap) as ps:
        for sums in expected:
            request = ps.start(w)
            request.wait(out=w, timeout=LIMIT)
            assert ps.weight == pytest.approx(sums[-1], abs=1e-12)
            np.testing.assert_allclose(w, sums[:-1] / sums[-1], atol=1e-12)
        final = ps.final(timeout=LIMIT)
        np.testing.assert_allclose(np.append(final * ps.weight, ps.weight), expected_final, atol=1e-12)
    weight = WORLD.allreduce(ps.weight)  # closed: the others may make more steps
    assert weight == pytest.approx(P, abs=1e-11)


@pytest.mark.parametrize("seed", range(4))
def test_random_graphs_and_naps(comm, seed):
    rng = np.random.default_rng([seed, P])
    graph = random_graph(rng, P)
    steps_of = [int(steps) for steps in rng.integers(0, 9, P)]
    naps = rng.choice([0.0, 0.0, 0.004], (P, 9))[comm.rank]
    models = models_of(2000, "f4", seed)
    expected = d_psgd(models, graph, "uniform", steps_of)[comm.rank] if max(steps_of) else []
    w = models[comm.rank].copy()
    with comm.neighbor_averaging(w, topology=graph, weights="uniform") as na:
        for nap, want in zip(naps, expected, strict=False):
            time.sleep(nap)
            na.average(w, timeout=LIMIT)
            np.testing.assert_array_equal(w, want)


def test_many_short_steps(comm):
    """2000 steps of one number each."""
    w = np.full(1, float(comm.rank))
    with comm.push_sum(w, topology=topology.exponential(P), overlap=1) as ps:
        for _ in range(2000):
            request = ps.start(w)
            request.wait(out=w, timeout=LIMIT)
        w = ps.final(timeout=LIMIT)
    assert w[0] == pytest.approx((P - 1) / 2)


@pytest.mark.mpi(min_size=2)
def test_a_stall_names_who_has_not_come(comm):
    w = np.ones(1)
    with comm.neighbor_averaging(w, topology=topology.complete(P), name="graph") as na:
        if comm.rank == 0:
            WORLD.Barrier()
            na.average(w, timeout=LIMIT)
        else:
            request = na.start(w)
            with pytest.raises(pc.StallError, match=r"'graph', step 0 \(waits for step 0 of rank 0\)"):
                request.wait(out=w, timeout=0.5)
            WORLD.Barrier()
            request.wait(out=w, timeout=LIMIT)
    assert w[0] == pytest.approx(1.0)
