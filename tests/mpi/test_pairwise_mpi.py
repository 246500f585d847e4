"""Pairwise averaging under MPI, in the shape of this run."""

import time

import numpy as np
import pytest
from mpi4py import MPI

import pycollectives as pc

ROUNDS = 20


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("acceleration", [None, "a2cid2"])
def test_mean_of_all_that_was_applied(dtype, acceleration):
    """600 000 elements: several pieces by messages."""
    comm = MPI.COMM_WORLD
    with pc.Communicator(comm) as c:
        start = np.full(600_000, comm.rank, dtype)
        with c.pairwise_averaging(start, topology="ring", acceleration=acceleration, rate=200) as model:
            for step in range(ROUNDS):
                model.apply(np.full(start.size, step % 3, dtype))
                model.read()
            model.equalize()
            equal = model.read()
            statistics = model.statistics()
        assert c.is_same_on_all_ranks(equal)
    mean = (comm.size - 1) / 2 + sum(step % 3 for step in range(ROUNDS))
    np.testing.assert_allclose(equal.astype(float), mean, rtol=1e-5 if dtype == "float32" else 1e-3)
    assert statistics.applied == ROUNDS


def test_ranks_come_together():
    comm = MPI.COMM_WORLD
    with pc.Communicator(comm) as c, c.pairwise_averaging(np.full(50, float(comm.rank))) as model:
        mean = (comm.size - 1) / 2
        # All go on until all are there: a rank that has the mean by chance must not leave the others without neighbors.
        for _ in range(2000):
            apart = c.mean(np.abs(model.read() - mean).max())
            if apart <= 0.01:
                break
            time.sleep(0.01)
        assert apart <= 0.01


def test_different_numbers_of_steps_and_early_leavers():
    """Rank r takes 10 r steps, and every third rank closes early."""
    comm = MPI.COMM_WORLD
    with pc.Communicator(comm) as c:
        model = c.pairwise_averaging(np.zeros(1000), topology="complete", pace="per_step")
        for _ in range(10 * comm.rank):
            model.apply(np.ones(1000))
        if comm.rank % 3 == 2:
            model.leave()
        else:  # those that stay have what they applied, and what they and those that left gave each other
            model.equalize()
            value = float(model.read()[0])
            assert 0 <= value <= 10 * (comm.size - 1)


def test_several_at_once_beside_other_collectives():
    comm = MPI.COMM_WORLD
    with pc.Communicator(comm) as c:
        total = c.partial_allreduce(np.zeros(10), policy="full")
        models = [c.pairwise_averaging(np.full(10, float(comm.rank)), topology="ring") for _ in range(2)]
        for step in range(10):
            for model in models:
                model.apply(np.ones(10))
            result, _ = total.allreduce(np.full(10, float(step)))
            assert result[0] == step * comm.size
        total.flush()
        for model in models:
            model.equalize()
            np.testing.assert_allclose(model.read(), (comm.size - 1) / 2 + 10)
