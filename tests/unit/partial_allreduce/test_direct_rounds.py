"""Direct rounds, and what takes them over: small data under Full, ranks as threads of one node."""

import threading

import numpy as np
import pytest

import pycollectives as pc
from pycollectives.testing import run_ranks

LIMIT = 30.0
SIZE = 3

pytestmark = pytest.mark.parametrize("missed", ["latest", "sum"])


def on_board(program, size=SIZE):
    return run_ranks(size, program, ranks_per_node=size, timeout=100.0)


def made(comm, missed, **arguments):
    return comm.partial_allreduce(**{"count": 3, "dtype": "int64", "policy": pc.Full(), "missed": missed, **arguments})


def data(rank, call):
    return np.array([1, 10**rank, call])


def expected(ranks, call):
    return [len(ranks), sum(10**r for r in ranks), len(ranks) * call]


def test_rounds_before_and_after_one_without_a_rank(missed):
    """Rank 2 flushes instead of contributing, when the others have posted: their posts count."""

    def program(comm):
        ar = made(comm, missed)
        for call in range(5):
            result, info = ar.allreduce(data(comm.rank, call), timeout=LIMIT)
            assert (info.round, info.contributors, info.missed, info.included) == (call, (0, 1, 2), 0, True)
            assert result.tolist() == expected((0, 1, 2), call)
        if comm.rank == 2:
            have_posted.wait(LIMIT)
        else:
            call = ar.contribute(data(comm.rank, 7))
            have_posted.wait(LIMIT)
            info = call.wait(timeout=LIMIT)
            assert (info.round, info.contributors, info.included) == (5, (0, 1), True)
            assert ar.result.tolist() == expected((0, 1), 7)
        assert ar.flush(timeout=LIMIT).round == 6
        for call in range(3):
            result, info = ar.allreduce(data(comm.rank, call), timeout=LIMIT)
            assert (info.round, info.contributors) == (7 + call, (0, 1, 2))
            assert result.tolist() == expected((0, 1, 2), call)
        assert ar.rounds == 10
        return True

    have_posted = threading.Barrier(SIZE)
    assert all(on_board(program))


def test_a_rank_that_closes(missed):
    def program(comm):
        ar = made(comm, missed)
        ar.allreduce(data(comm.rank, 0), timeout=LIMIT)
        if comm.rank == 2:
            have_posted.wait(LIMIT)
            ar.leave()
            return (0, 1)
        call = ar.contribute(data(comm.rank, 1))
        have_posted.wait(LIMIT)
        assert call.wait(timeout=LIMIT).contributors == (0, 1)
        result, info = ar.allreduce(data(comm.rank, 2), timeout=LIMIT)
        assert result.tolist() == expected((0, 1), 2)
        return info.contributors

    have_posted = threading.Barrier(SIZE)
    assert on_board(program) == [(0, 1)] * SIZE


@pytest.mark.parametrize("complete", [True, False], ids=["complete", "open"])
def test_a_rank_that_closes_before_it_waits(missed, complete):
    """Its call is done all the same, and is given its round when it looks, after rounds without it."""

    def program(comm):
        ar = made(comm, missed)
        ar.allreduce(data(comm.rank, 0), timeout=LIMIT)
        call = ar.contribute(data(comm.rank, 1)) if comm.rank == 0 or complete else None
        together.wait(LIMIT)
        if comm.rank == 0:
            ar.leave()
        together.wait(LIMIT)
        if comm.rank > 0:
            info = (call or ar.contribute(data(comm.rank, 1))).wait(timeout=LIMIT)
            assert (info.round, info.contributors) == (1, (0, 1, 2))
            assert ar.result.tolist() == expected((0, 1, 2), 1)
            for number in (2, 3, 4):
                result, info = ar.allreduce(data(comm.rank, number), timeout=LIMIT)
                assert (info.round, info.contributors) == (number, (1, 2))
                assert result.tolist() == expected((1, 2), number)
        together.wait(LIMIT)
        if comm.rank == 0:
            info = call.wait(timeout=LIMIT)
            assert (info.round, info.contributors, info.included) == (1, (0, 1, 2), True)
            assert ar.result.tolist() == expected((0, 1, 2), 1)
        return True

    together = threading.Barrier(SIZE)
    assert all(on_board(program))


@pytest.mark.parametrize("waits_for", ["first", "last"])
def test_a_call_that_is_not_waited_for_before_the_next(missed, waits_for):
    """Its round is complete: the posts are used again, and what it is to be given is kept."""

    def program(comm):
        ar = made(comm, missed)
        calls = []
        for call in range(4):
            calls.append(ar.contribute(data(comm.rank, call)))
            together.wait(LIMIT)
        if waits_for == "first":
            for call in calls:
                call.wait(timeout=LIMIT)
        info = calls[-1].wait(timeout=LIMIT)
        assert (info.round, info.contributors) == (3, (0, 1, 2))
        if waits_for == "last":
            total = [4 * SIZE, 4 * 111, 6 * SIZE] if missed == "sum" else expected((0, 1, 2), 3)
            assert ar.result.tolist() == total
        result, info = ar.allreduce(data(comm.rank, 5), timeout=LIMIT)
        assert (info.round, result.tolist()) == (4, expected((0, 1, 2), 5))
        return True

    together = threading.Barrier(SIZE)
    assert all(on_board(program))


def test_two_contributions_to_one_round(missed):
    """The second waits for the next round, which takes it without another call of its rank."""

    def program(comm):
        ar = made(comm, missed)
        calls = [ar.contribute(data(comm.rank, 1))] if comm.rank == 0 else []
        if comm.rank == 0:
            calls.append(ar.contribute(data(comm.rank, 2)))
        together.wait(LIMIT)
        if comm.rank > 0:
            calls.append(ar.contribute(data(comm.rank, 1)))
        infos = [call.wait(timeout=LIMIT) for call in calls]
        assert [info.included for info in infos] == [True, False][: len(infos)]
        assert ar.result.tolist() == (expected((0, 1, 2), 1) if len(calls) == 1 or missed == "latest" else [0, 0, 0])
        together.wait(LIMIT)
        if comm.rank > 0:
            result, info = ar.allreduce(data(comm.rank, 2), timeout=LIMIT)
            assert (info.round, info.contributors, result.tolist()) == (1, (0, 1, 2), expected((0, 1, 2), 2))
        together.wait(LIMIT)
        if comm.rank == 0:
            late = ar.contribute(data(0, 3))
            assert late.late
            late.wait(timeout=LIMIT)
        together.wait(LIMIT)
        if comm.rank > 0:
            ar.allreduce(data(comm.rank, 3), timeout=LIMIT)
        ar.flush(timeout=LIMIT)
        result, info = ar.allreduce(data(comm.rank, 4), timeout=LIMIT)
        assert (info.contributors, result.tolist()) == ((0, 1, 2), expected((0, 1, 2), 4))
        return True

    together = threading.Barrier(SIZE)
    assert all(on_board(program))


@pytest.mark.parametrize(("op", "dtype"), [("AVG", "int32"), ("AVG", "float16"), ("SUM", "float16"), ("MAX", "int8")])
def test_elements_that_are_computed_with_as_others(missed, op, dtype):
    """Given at once, and kept."""
    if op == "MAX" and missed == "sum":
        pytest.skip("a maximum has no sum")

    def program(comm):
        ar = made(comm, missed, op=op, dtype=dtype)
        x = np.array([1 + comm.rank, 2, 5], dtype)
        at_once = ar.allreduce(x, timeout=LIMIT)[0].tolist()
        call = ar.contribute(x)
        together.wait(LIMIT)
        ar.contribute(x)
        together.wait(LIMIT)
        call.wait(timeout=LIMIT)
        return at_once, ar.result.tolist()

    together = threading.Barrier(SIZE)
    result = {"AVG": [2, 2, 5], "SUM": [6, 6, 15], "MAX": [3, 2, 5]}[op]
    assert on_board(program) == [(result, result)] * SIZE


def test_a_result_changes_when_its_call_is_waited_for(missed):
    """Not when the round completes, nor when the next call is made."""

    def program(comm):
        ar = made(comm, missed)
        first = ar.allreduce(data(comm.rank, 1), timeout=LIMIT)[0]
        call = ar.contribute(data(comm.rank, 2))
        together.wait(LIMIT)
        assert ar.rounds == 2
        assert ar.result.tolist() == first.tolist() == expected((0, 1, 2), 1)
        call.wait(timeout=LIMIT)
        assert ar.result.tolist() == expected((0, 1, 2), 2)
        assert first.tolist() == expected((0, 1, 2), 1)
        return True

    together = threading.Barrier(SIZE)
    assert all(on_board(program))


def test_a_rank_that_does_not_come_is_named(missed):
    """Who has posted has arrived; the call can be waited for again."""

    def program(comm):
        ar = made(comm, missed)
        ar.allreduce(data(comm.rank, 0), timeout=LIMIT)
        if comm.rank != 1:
            call = ar.contribute(data(comm.rank, 1))
            have_posted.wait(LIMIT)
            with pytest.raises(pc.StallError, match=r"round 1: .* have not arrived: rank 1 \("):
                call.wait(timeout=0.05)
            have_waited.wait(LIMIT)
            return call.wait(timeout=LIMIT).contributors
        have_posted.wait(LIMIT)
        have_waited.wait(LIMIT)
        return ar.allreduce(data(comm.rank, 1), timeout=LIMIT)[1].contributors

    have_posted, have_waited = threading.Barrier(SIZE), threading.Barrier(SIZE)
    assert on_board(program) == [(0, 1, 2)] * SIZE


def test_a_rank_that_waits_for_long_is_woken(missed):
    """By the last post: nothing rings where nobody sleeps."""

    def program(comm):
        ar = made(comm, missed)
        for call in range(3):
            if comm.rank == call:
                waits[call].wait(0.2)
            result, info = ar.allreduce(data(comm.rank, call), timeout=LIMIT)
            assert result.tolist() == expected((0, 1, 2), call)
            assert info.initiator != call
        return True

    waits = [threading.Event() for _ in range(SIZE)]  # nobody sets them: a rank that is late
    assert all(on_board(program))
