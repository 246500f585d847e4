"""What a result is: right sums, reductions and bits, for any number of ranks."""

from __future__ import annotations

import numpy as np
import pytest
from arrivals import one_late
from checked_runs import run_script
from mpi4py import MPI
from oracle import LIMIT

import pycollectives as pc

pytestmark = pytest.mark.one_communicator

WORLD = MPI.COMM_WORLD
ONE = np.ones(1, np.int64)


@pytest.mark.parametrize("algorithm", ["recursive_doubling", "ring", "rabenseifner"])
def test_sums_are_right_when_the_number_of_ranks_is_no_power_of_two(comm, algorithm):
    """At every P at which this suite runs, and in groups of 1 to P ranks."""
    for size in range(1, WORLD.size + 1):
        group = WORLD.Split(0 if WORLD.rank < size else MPI.UNDEFINED, WORLD.rank)
        if group == MPI.COMM_NULL:
            continue
        with pc.Communicator(group) as part:
            ar = part.partial_allreduce(count=3, dtype="int64", policy=pc.Full(), algorithm=algorithm)
            result, info = ar.allreduce(np.array([1, 10**part.rank, -part.rank]), timeout=LIMIT)
            assert info.contributors == tuple(range(size))
            assert result.tolist() == [size, int("1" * size), -size * (size - 1) // 2]
        group.Free()


def test_one_rank_alone():
    with pc.Communicator(MPI.COMM_SELF) as alone:
        for policy in (pc.Solo(), pc.Majority(1), pc.Quorum(1), pc.policies.AnyOf(1), pc.policies.AllOf(1), pc.Full()):
            ar = alone.partial_allreduce(count=2, dtype="f4", policy=policy, missed="sum")
            for step in range(3):
                result, info = ar.allreduce(np.full(2, step, "f4"), timeout=LIMIT)
                assert (result.tolist(), info.contributors, info.initiator) == ([step, step], (0,), 0)
            assert ar.flush(timeout=LIMIT).contributors == ()


def test_no_torn_results(comm):
    """A contribution is handed over at once, and a result never changes under its reader.

    Each contribution is one value in all elements, then at once another; each result must be one value in all elements,
    when it comes and later, while further rounds run.
    """
    count = 200_003
    ar = comm.partial_allreduce(count=count, dtype="int64", policy=pc.Solo())
    x, kept = np.empty(count, np.int64), []
    for step in range(12):
        x[:] = step + 1
        handle = ar.contribute(x)
        x[:] = -1
        handle.wait(timeout=LIMIT)
        kept.append((ar.result, int(ar.result[0])))
        for result, value in kept[-3:]:
            assert value > 0
            assert (result == value).all()
    ar.flush(timeout=LIMIT)
    assert all((result == value).all() for result, value in kept)
    ar.leave()


@pytest.mark.parametrize("op", ["PROD", "MIN", "MAX", pc.AVG])
def test_other_reductions_than_sum(comm, op):
    """With negative numbers too: a rank that is absent does not count as zero."""
    run_script(comm, one_late, op=op)
    ar = comm.partial_allreduce(count=1, dtype="f8", op=op, policy=pc.Solo())
    result, info = ar.allreduce(np.full(1, -2.0 - comm.rank), timeout=LIMIT)
    values = [-2.0 - rank for rank in info.contributors]
    expected = {"PROD": np.prod(values), "MIN": min(values), "MAX": max(values), pc.AVG: np.mean(values)}[op]
    assert result[0] == pytest.approx(expected)
    ar.flush(timeout=LIMIT)
    ar.leave()


def test_a_failure_is_not_a_completion(comm):
    """A call that fails completes nothing: neither a refused contribution nor a wait that runs into its limit."""
    ar = comm.partial_allreduce(count=1, dtype="int64", policy=pc.Full())
    rounds = ar.rounds
    for wrong in (np.ones(2, np.int64), np.ones(1)):
        with pytest.raises((ValueError, TypeError)):
            ar.contribute(wrong)
    assert ar.rounds == rounds
    if comm.size > 1:
        handle = None
        if comm.rank != 0:
            handle = ar.contribute(ONE)
            with pytest.raises(pc.StallError):
                handle.wait(timeout=0.0)
            assert not handle.test()
            WORLD.send(None, 0, tag=3)
        else:
            for rank in range(1, comm.size):
                WORLD.recv(source=rank, tag=3)
            handle = ar.contribute(ONE)
        assert handle.wait(timeout=LIMIT).contributors == tuple(range(comm.size))
    ar.leave()
