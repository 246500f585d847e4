"""Hop over MPI: the formulas on every graph, late ranks, and ranks that leave."""

from __future__ import annotations

import time

import numpy as np
import pytest
from mpi4py import MPI
from neighbor_oracle import d_psgd
from oracle import LIMIT
from shared_oracle import of_this_rank

import pycollectives as pc
from pycollectives import topology

pytestmark = pytest.mark.one_communicator

WORLD = MPI.COMM_WORLD
P = WORLD.size
FAMILIES = [topology.ring, topology.ring_based, topology.exponential, topology.complete]
LATE_MODES = [pc.hop.BoundedStaleness(2), *([pc.hop.BackupWorkers(1), pc.hop.Hybrid(1, 2)] if P > 1 else [])]


def models_of(count, dtype, seed=0):
    rng = np.random.default_rng([seed, P])
    return [rng.standard_normal(count).astype(dtype) for _ in range(P)]


@pytest.mark.parametrize("mode", [pc.hop.Standard(), pc.hop.NotifyAck()], ids=repr)
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
@pytest.mark.parametrize(("count", "dtype"), [(0, "f4"), (5, "f8"), (70_000, "f2"), (500_000, "f4")])
def test_standard(comm, family, count, dtype, mode):
    """With ranks that leave after different numbers of iterations, and small gaps."""
    models, graph = models_of(count, dtype), family(P)
    steps_of = [3 + rank % 3 for rank in range(P)]
    expected = of_this_rank(lambda slices: d_psgd(slices, graph, "uniform", [5] * P), models)
    with comm.hop(models[comm.rank], topology=graph, mode=mode, max_ig=2) as hop:
        for k in hop.iterations(steps_of[comm.rank], timeout=LIMIT):
            hop.step(np.zeros(count, dtype), timeout=LIMIT)
            if k < 3:  # all take part
                tolerance = 2e-2 if dtype == "f2" else 1e-5
                got, want = hop.parameters.astype("f8"), expected[k].astype("f8")
                np.testing.assert_allclose(got, want, rtol=tolerance, atol=1e-3)


@pytest.mark.parametrize("mode", LATE_MODES, ids=repr)
@pytest.mark.parametrize("seed", range(3))
def test_late_ranks(comm, mode, seed):
    """Random naps, jumps, and different numbers of iterations. What is received is what may be."""
    rng = np.random.default_rng([seed, P])
    graph = FAMILIES[seed](P)
    steps_of = [int(steps) for steps in rng.integers(1, 30, P)]
    naps = rng.choice([0.0, 0.0, 0.0, 0.01], (P, 30))[comm.rank]
    skip = pc.hop.Skip(5) if seed else None
    with comm.hop(np.full(3000, float(comm.rank)), topology=graph, mode=mode, max_ig=3, skip=skip) as hop:
        for k in hop.iterations(steps_of[comm.rank], timeout=LIMIT):
            time.sleep(naps[k])
            hop.step(np.full(3000, 0.5), timeout=LIMIT)
            assert np.ptp(hop.parameters) == 0  # of one moment, from end to end
            for sender, iteration in hop.received:
                assert sender in graph.in_neighbors(comm.rank)
                assert iteration == k if mode.staleness is None else iteration >= k - mode.staleness
        assert k == steps_of[comm.rank] - 1
        done = hop.statistics()
        assert done.iterations + done.skipped == steps_of[comm.rank]


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("count", [10, 100_000])
def test_updates_that_arrive_together_are_told_apart(comm, count):
    """Eight of each sender, to a rank that sleeps: each is what its sender had in that iteration."""
    graph = pc.topology.Topology(
        P, [(rank, (rank + 1) % P) for rank in range(P)]
    )  # of one in-neighbor, none is waited for
    sent, received, after = [], [], []
    with comm.hop(np.full(count, float(comm.rank)), topology=graph, mode=pc.hop.BackupWorkers(1), max_ig=8) as hop:
        for k in hop.iterations(9, timeout=LIMIT):
            sent.append(float(hop.parameters[0]))
            if k == 0 and comm.rank % 2:
                time.sleep(0.3)
            hop.step(np.full(count, comm.rank + 1.0), timeout=LIMIT)
            assert np.ptp(hop.parameters) == 0
            received.append(hop.received)
            after.append(float(hop.parameters[0]))
    of_all = WORLD.allgather(sent)
    for k in range(9):
        values = [sent[k], *(of_all[sender][iteration] for sender, iteration in received[k])]
        assert after[k] == pytest.approx(sum(values) / len(values) + comm.rank + 1.0)


@pytest.mark.mpi(min_size=3)
def test_a_straggler_does_not_hold_up_the_others(comm):
    """Rank 0 takes 20 ms; with jumps the others are through before it could be."""
    graph, steps = topology.complete(P), 40
    with comm.hop(np.zeros(100), topology=graph, mode=pc.hop.BackupWorkers(1), skip=pc.hop.Skip(10)) as hop:
        WORLD.Barrier()
        for _ in hop.iterations(steps, timeout=LIMIT):
            time.sleep(0.02 if comm.rank == 0 else 0.001)
            hop.step(np.zeros(100), timeout=LIMIT)
        if comm.rank == 0:
            assert hop.statistics().jumps > 0


def test_many_short_iterations(comm):
    """2000 iterations of one number each."""
    with comm.hop(np.full(1, float(comm.rank)), topology=topology.exponential(P), max_ig=3) as hop:
        for _ in hop.iterations(2000, timeout=LIMIT):
            hop.step(np.zeros(1), timeout=LIMIT)
        assert hop.parameters[0] == pytest.approx((P - 1) / 2)


@pytest.mark.mpi(min_size=2)
def test_a_stall_names_who_has_not_come_and_what_is_missing(comm):
    with comm.hop(np.ones(1), topology=topology.complete(P), name="graph") as hop:
        iterations = hop.iterations(1, timeout=LIMIT)
        if comm.rank == 0:
            WORLD.Barrier()
            next(iterations)
            hop.step(np.zeros(1), timeout=LIMIT)
        else:
            next(iterations)
            missing = r"'graph', step of iteration 0 \(waits for the update of iteration 0 of rank 0\)"
            with pytest.raises(pc.StallError, match=missing):
                hop.step(np.zeros(1), timeout=0.5)
            WORLD.Barrier()
            hop.step(np.zeros(1), timeout=LIMIT)
        assert hop.parameters[0] == pytest.approx(1.0)


# --- The queues by themselves


@pytest.mark.parametrize("count", [3, 100_000])
def test_update_queues(comm, count):
    """Each rank sends to all, and takes the updates of all. Lengths below and above those of parts."""
    queues = [comm.update_queue(np.zeros(count), owner=rank, max_ig=2) for rank in range(P)]
    mine = queues[comm.rank]
    for k in range(10):
        for rank in range(P):
            if rank != comm.rank:
                queues[rank].enqueue(np.full(count, 100.0 * k + comm.rank), iteration=k, timeout=LIMIT)
        updates = mine.dequeue(P - 1, iteration=k, timeout=LIMIT)
        assert [u.sender for u in updates] == [rank for rank in range(P) if rank != comm.rank]
        for update in updates:
            assert update.iteration == k
            assert (update.update == 100.0 * k + update.sender).all()
    for queue in queues:
        queue.leave()


@pytest.mark.mpi(min_size=2)
def test_token_queues(comm):
    """A ring: a rank is at most three ahead of the next, whoever naps."""
    queues = [comm.token_queue(owner=rank, taker=(rank - 1) % P, tokens=3) for rank in range(P)]
    own, of_next = queues[comm.rank], queues[(comm.rank + 1) % P]
    for k in range(200):
        if k % P == comm.rank:
            time.sleep(0.002)
        of_next.dequeue(timeout=LIMIT)
        own.enqueue()
    for queue in queues:
        queue.leave()
