"""Handles: test, wait, wait_all, wait_any, order of waiting; and time limits that are kept."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from mpi4py import MPI
from oracle import LIMIT

import pycollectives as pc

pytestmark = pytest.mark.one_communicator

WORLD = MPI.COMM_WORLD
ONE = np.ones(1, np.int64)
ALONE = r"(?![-,\d])"
"""Matches behind the number of a rank that is no part of a list of ranks, such as "0-2" or "0, 3"."""


def test_wait_all_of_several_collectives(comm):
    collectives = [comm.partial_allreduce(count=1, dtype="int64", policy=pc.Full()) for _ in range(4)]
    rounds = [ar.contribute(ONE) for ar in collectives]
    if comm.rank % 2:
        rounds.reverse()
    infos = pc.wait_all(rounds, timeout=LIMIT)
    assert [info.round for info in infos] == [0] * 4
    assert [int(ar.result[0]) for ar in collectives] == [comm.size] * 4
    for ar in collectives:
        ar.leave()


def test_wait_any_returns_the_one_that_can_complete(comm):
    """The first waits for the last rank, who answers the second only."""
    first, second = (comm.partial_allreduce(count=1, dtype="int64", policy=pc.Full()) for _ in range(2))
    last = comm.rank == comm.size - 1
    if last and comm.size > 1:
        second.contribute(ONE).wait(timeout=LIMIT)
        for rank in range(comm.size - 1):
            WORLD.recv(source=rank, tag=5)
        first.contribute(ONE).wait(timeout=LIMIT)
    else:
        rounds = [first.contribute(ONE), second.contribute(ONE)]
        if comm.size > 1:
            assert pc.wait_any(rounds, timeout=LIMIT) == 1
            assert not rounds[0].test()
            WORLD.send(None, comm.size - 1, tag=5)
        assert pc.wait_any(rounds[:1], timeout=LIMIT) == 0
        assert pc.wait_any(rounds, timeout=LIMIT) == 0
    first.leave()
    second.leave()


def test_testing_completes_a_round_without_waiting(comm):
    ar = comm.partial_allreduce(count=1, dtype="int64", policy=pc.Full())
    handle = ar.contribute(ONE)
    end = time.monotonic() + LIMIT
    while not handle.test():
        assert time.monotonic() < end
    assert handle.test()
    assert handle.wait().contributors == tuple(range(comm.size))
    assert ar.result[0] == comm.size
    ar.leave()


def test_both_handles_of_two_contributions_complete_together(comm):
    """Without a wait between them. Both are delivered, in this round or the next."""
    ar = comm.partial_allreduce(count=1, dtype="int64", policy=pc.Full(), missed="sum")
    first, second = ar.contribute(ONE), ar.contribute(10 * ONE)
    infos = pc.wait_all([first, second], timeout=LIMIT)
    assert infos[0].round in (infos[1].round, infos[1].round - 1)
    ar.leave()


@pytest.mark.parametrize(
    "missed",
    [
        "latest",
        "sum",
    ],
)
def test_an_older_handle_waited_for_first_has_a_result(comm, missed):
    """A round that completed unseen, then another: waiting for the older is no error and loses nothing in silence."""
    ar = comm.partial_allreduce(count=1, dtype="int64", policy=pc.Full(), missed=missed)
    first = ar.contribute(ONE)
    while ar.rounds < 1:  # complete, and nobody has looked
        time.sleep(1e-3)
    second = ar.contribute(10 * ONE)
    while ar.rounds < 2:
        time.sleep(1e-3)
    seen = 0
    given = []
    for handle in (first, second):
        info = handle.wait(timeout=LIMIT)
        if info.round >= seen:
            seen += info.missed + 1
            given.append(int(ar.result[0]))
    assert seen == 2, "a round was neither given nor counted as missed"
    assert given in ([comm.size, 10 * comm.size], [11 * comm.size] if missed == "sum" else [10 * comm.size])
    ar.leave()


def test_a_result_outlives_its_collective(comm):
    """Promise 7: also when the memory could have been used again by others."""
    ar = comm.partial_allreduce(count=10_000, dtype="int64", policy=pc.Full())
    result, _ = ar.allreduce(np.arange(10_000), timeout=LIMIT)
    ar.leave()
    del ar
    other = comm.partial_allreduce(count=10_000, dtype="int64", policy=pc.Full())
    for _ in range(5):
        other.allreduce(np.zeros(10_000, np.int64), timeout=LIMIT)
    np.testing.assert_array_equal(result, comm.size * np.arange(10_000))
    other.leave()


def test_a_call_under_way_when_its_rank_closes(comm):
    """The handle completes with its round all the same."""
    ar = comm.partial_allreduce(count=1, dtype="int64", policy=pc.Full())
    handle = ar.contribute(ONE)
    ar.leave()
    assert handle.wait(timeout=LIMIT).contributors == tuple(range(comm.size))
    assert ar.result[0] == comm.size


def test_waiting_again_says_the_same(comm):
    ar = comm.partial_allreduce(count=1, dtype="int64", policy=pc.Full())
    handle = ar.contribute(ONE)
    first = handle.wait(timeout=LIMIT)
    ar.allreduce(5 * ONE, timeout=LIMIT)
    again = handle.wait(timeout=0.0)
    assert (again.round, again.contributors, again.included) == (first.round, first.contributors, first.included)
    assert ar.result[0] == 5 * comm.size
    ar.leave()


@pytest.mark.mpi(min_size=2)
def test_a_time_limit_is_kept_and_the_call_can_be_taken_up_again(comm):
    """The stall names the rank that has not arrived, and nobody else; the data stays handed over."""
    ar = comm.partial_allreduce(count=1, dtype="int64", policy=pc.Full(), name="gradients")
    absent = comm.size - 1
    others = WORLD.Split(int(comm.rank == absent), comm.rank)
    if comm.rank == absent:
        for rank in range(absent):
            WORLD.recv(source=rank, tag=6)
        ar.allreduce(ONE, timeout=LIMIT)
    else:
        handle = ar.contribute(ONE)
        others.Barrier()  # all of them have arrived
        names_it = rf"'gradients', round 0: .*not arrived: rank {absent}{ALONE}"
        for limit in (0.0, 0.2):
            begin = time.monotonic()
            with pytest.raises(pc.StallError, match=names_it) as stall:
                handle.wait(timeout=limit)
            assert limit <= time.monotonic() - begin < limit + 10
        WORLD.send(str(stall.value), absent, tag=6)
        assert handle.wait(timeout=LIMIT).contributors == tuple(range(comm.size))
        assert ar.result[0] == comm.size
    others.Free()
    ar.leave()


@pytest.mark.mpi(min_size=2)
def test_a_flush_that_runs_into_its_limit_names_who_has_not_flushed_and_is_taken_up_again(comm):
    ar = comm.partial_allreduce(count=1, dtype="int64", missed="sum", name="gradients", policy="solo")
    if comm.rank == 0:
        for rank in range(1, comm.size):
            WORLD.recv(source=rank, tag=7)
        total = int(ar.allreduce(ONE, timeout=LIMIT)[0][0])
    else:
        total = 0
        with pytest.raises(pc.StallError, match=rf"flush of 'gradients'.*not flushed or closed: rank 0{ALONE}"):
            ar.flush(timeout=0.2)
        WORLD.send(None, 0, tag=7)
    ar.flush(timeout=LIMIT)
    assert total + int(ar.result[0]) == 1
    ar.leave()


@pytest.mark.mpi(min_size=2)
def test_closing_a_communicator_names_who_has_not():
    comm = pc.Communicator(WORLD)
    if comm.rank == 0:
        for rank in range(1, comm.size):
            WORLD.recv(source=rank, tag=8)
    else:
        with pytest.raises(pc.StallError, match=rf"closing the communicator: not closed on rank 0{ALONE}"):
            comm.close(timeout=0.2)
        WORLD.send(None, 0, tag=8)
    comm.close(timeout=LIMIT)


def test_threads_that_close_the_same_communicator():
    """What MPI has given is freed once, and before any of them returns."""
    comm = pc.Communicator(WORLD)
    with ThreadPoolExecutor(3) as threads:
        for closing in [threads.submit(comm._engine.close, timeout=LIMIT) for _ in range(3)]:
            closing.result(LIMIT)
    comm.close()


@pytest.mark.parametrize("limit", [-1, float("nan"), "soon"])
def test_limits_that_are_refused(comm, limit):
    ar = comm.partial_allreduce(count=1, dtype="int64", policy="solo")
    with pytest.raises((ValueError, TypeError)):
        ar.allreduce(ONE, timeout=limit)
    assert ar.rounds == 0 or comm.size > 1
    ar.leave()
