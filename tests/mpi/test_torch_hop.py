"""Hop for PyTorch, in each of its modes, over MPI."""

from __future__ import annotations

import time

import numpy as np
import pytest
from mpi4py import MPI
from oracle import LIMIT

torch = pytest.importorskip("torch")

import pycollectives as pc  # noqa: E402
from pycollectives.torch import DecentralizedOptimizer  # noqa: E402

pytestmark = pytest.mark.one_communicator(timeout=LIMIT)

WORLD = MPI.COMM_WORLD
HOP = [
    {"mode": "backup:1"},
    {"mode": "staleness:3"},
    {"mode": "hybrid:1:2", "max_ig": 2},
    {"mode": "notify-ack"},
    {"mode": "backup:1", "skip": pc.hop.Skip(4)},
    {"computation": "serial"},
    {"mode": "staleness:2", "computation": "serial"},
]


def parameters_of(*counts):
    return [torch.nn.Parameter(torch.full((count,), 8.0, dtype=torch.float64)) for count in counts]


def made(comm, parameters, **options):
    inner = torch.optim.SGD(parameters, lr=1.0)
    return DecentralizedOptimizer(inner, comm, "hop", topology="complete", timeout=LIMIT, **options)


def push(optimizer, parameters, gradient, steps):
    """Steps with the same gradient for every element."""
    for _ in range(steps):
        optimizer.zero_grad()
        sum(each.sum() * gradient for each in parameters).backward()
        optimizer.step()


def model_of(parameters):
    return np.concatenate([each.detach().numpy() for each in parameters])


def noted_deltas(hop):
    """The list to which each delta is added that `hop` is given from now on."""
    deltas, step = [], hop.step

    def note(delta, *, timeout):
        deltas.append(delta.copy())
        step(delta, timeout=timeout)

    hop.step = note
    return deltas


@pytest.mark.parametrize("options", HOP, ids=str)
def test_hop_is_given_what_the_optimizer_did(comm, options):
    """In every mode: with whatever models are averaged, a delta is that step's update, and Hop's model is shown."""
    parameters = parameters_of(6, 3)
    with made(comm, parameters, **options) as optimizer:
        hop = optimizer.averaging
        for name, value in options.items():
            assert getattr(hop, name) == (pc.hop.modes.parse(value)[0] if name == "mode" else value)
        deltas = noted_deltas(hop)
        for step in range(6):
            time.sleep(0.003 * ((step + WORLD.rank) % 3 == 0))
            push(optimizer, parameters, WORLD.rank + 1.0, 1)
            np.testing.assert_array_equal(model_of(parameters), hop.parameters)
        np.testing.assert_allclose(deltas, np.full((6, hop.count), -1.0 - WORLD.rank), rtol=1e-12)
        optimizer.finish()
    assert comm.is_same_on_all_ranks(model_of(parameters).tobytes())
    assert 8 - 6 * WORLD.size**2 <= parameters[0].min()
    assert parameters[0].max() <= 8 - 1


@pytest.mark.parametrize("computation", ["parallel", "serial"])
def test_the_computation_graphs_of_hop(comm, computation):
    """Average, then add the update; or add, then average: models are equal after each step then."""
    parameters, mean = parameters_of(6), (WORLD.size + 1) / 2
    with made(comm, parameters, computation=computation) as optimizer:
        for step in range(4):
            push(optimizer, parameters, WORLD.rank + 1.0, 1)
            expected = 8 - (step + 1) * mean if computation == "serial" else 8 - step * mean - (WORLD.rank + 1)
            np.testing.assert_allclose(model_of(parameters), expected, rtol=1e-12, atol=1e-12)
        optimizer.finish()
    np.testing.assert_allclose(model_of(parameters), 8 - 4 * mean, rtol=1e-12, atol=1e-12)


@pytest.mark.mpi(min_size=2)
def test_a_rank_that_jumps_goes_on_from_the_model_that_it_is_given(comm):
    """Rank 0 is four iterations behind. It takes one step, jumps over three, and has lost no update then."""
    parameters = parameters_of(6)
    options = {"mode": "backup:1", "skip": pc.hop.Skip(10, trigger=3), "max_ig": 5}
    with made(comm, parameters, **options) as optimizer:
        hop = optimizer.averaging
        deltas = noted_deltas(hop)
        if WORLD.rank > 0:
            push(optimizer, parameters, 1.0, 4)
        WORLD.Barrier()
        if WORLD.rank == 0:
            end = time.monotonic() + LIMIT
            while hop._collective.queued < 5 * (WORLD.size - 1):  # of iterations 0 to 4; tokens come before the last
                assert time.monotonic() < end
                comm.advance()
                time.sleep(1e-3)
            push(optimizer, parameters, 1.0, 1)
            assert hop.iteration == 4
            assert (hop.statistics().jumps, hop.statistics().skipped) == (1, 3)
            assert parameters[0].max() <= 8 - 2, "averaged with models that begin iteration 3, which are 3 lower"
        WORLD.Barrier()
        push(optimizer, parameters, 1.0, 3)
        assert hop.iteration == 7
        np.testing.assert_array_equal(model_of(parameters), hop.parameters)
        np.testing.assert_allclose(deltas, np.full((len(deltas), hop.count), -1.0), rtol=1e-12)
        optimizer.finish()
    assert comm.is_same_on_all_ranks(model_of(parameters).tobytes())
