"""The shared counter on ranks in threads; its protocol in virtual time is in tests/cpp/test_counter.cc."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from itertools import chain

import pytest

import pycollectives as pc
from pycollectives.testing import run_ranks

LIMIT = 30.0
shapes = pytest.mark.parametrize("ranks_per_node", [1, 2, "all"])


@shapes
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_every_number_is_given_once(ranks, ranks_per_node):
    def program(comm):
        counter = comm.counter(start=7)
        given = []
        for k in range(40):
            n = (comm.rank + k) % 4
            first = counter.fetch_add(n, timeout=LIMIT)
            given += range(first, first + n)
        counter.flush(timeout=LIMIT)
        return given

    given = sorted(chain.from_iterable(run_ranks(ranks, program, ranks_per_node=ranks_per_node)))
    assert given == list(range(7, 7 + len(given)))


@shapes
def test_read_adds_nothing(ranks_per_node):
    def program(comm):
        counter = comm.counter(start=1 << 62)
        counter.fetch_add(1 << 31, timeout=LIMIT)
        comm.mean(0.0, timeout=LIMIT)
        return [counter.read(timeout=LIMIT) for _ in range(2)]

    assert run_ranks(3, program, ranks_per_node=ranks_per_node) == [[(1 << 62) + 3 * (1 << 31)] * 2] * 3


@pytest.mark.parametrize(("n", "text"), [(-1, "n: expected"), ((1 << 31) + 1, "n: expected"), (1.5, "n: expected")])
def test_numbers_that_are_refused(n, text):
    def program(comm):
        counter = comm.counter()
        with pytest.raises((ValueError, TypeError), match=text):
            counter.fetch_add(n)
        return counter.read(timeout=LIMIT)

    assert run_ranks(2, program) == [0, 0]


def test_starts_that_are_refused():
    def program(comm):
        for start in (-1, (1 << 62) + 1, 0.5, None):
            with pytest.raises((ValueError, TypeError), match="start: expected"):
                comm.counter(start=start)
        with pytest.raises(pc.MismatchError, match="start"):
            comm.counter(start=comm.rank)

    run_ranks(2, program)


def test_rank_0_may_be_asleep_or_gone():
    """Its progress thread answers while its application sleeps, and after it has left."""

    has_answers, has_left = threading.Event(), threading.Event()

    def program(comm):
        counter = comm.counter()
        if comm.rank == 0:
            assert has_answers.wait(LIMIT)
            counter.leave()
            has_left.set()
            return None
        for _ in range(10):
            counter.fetch_add(timeout=LIMIT)
        has_answers.set()
        assert has_left.wait(LIMIT)
        return counter.fetch_add(timeout=LIMIT)

    assert run_ranks(2, program, ranks_per_node=1) == [None, 10]


def test_rank_0_answers_in_its_own_calls():
    """Without a progress thread."""
    has_ended = threading.Event()

    def program(comm):
        counter = comm.counter()
        while comm.rank == 0 and not has_ended.is_set():
            counter.read()
        if comm.rank == 1:
            counter.fetch_add(3, timeout=LIMIT)
            has_ended.set()

    run_ranks(2, program, ranks_per_node=1, progress="caller")


def test_without_progress_on_rank_0_a_call_stalls_and_is_repeated():
    both_have_made, has_stalled = threading.Barrier(2), threading.Event()

    def program(comm):
        counter = comm.counter()
        both_have_made.wait(LIMIT)  # in the creation rank 0 would answer
        if comm.rank == 0:
            has_stalled.wait(LIMIT)
            counter.fetch_add(10)
            counter.flush()
        else:
            with pytest.raises(pc.StallError, match=r"fetch_add \(waits for the answer of rank 0\)"):
                counter.fetch_add(3, timeout=0.1)
            with pytest.raises(ValueError, match=r"fetch_add\(3\) was given up"):
                counter.fetch_add(2, timeout=LIMIT)
            has_stalled.set()
            first = counter.fetch_add(3, timeout=LIMIT)
            assert first in (0, 10)
        comm.mean(0.0, timeout=LIMIT)
        return counter.read(timeout=LIMIT) if comm.rank == 0 else None

    assert run_ranks(2, program, ranks_per_node=1, progress="caller")[0] == 13


# --- until


def test_a_loop_goes_on_after_a_stall():
    stalled, both_have_made = threading.Event(), threading.Barrier(2)

    def program(comm):
        counter = comm.counter()
        both_have_made.wait(LIMIT)
        if comm.rank == 0:
            stalled.wait(LIMIT)
            comm.mean(0.0, timeout=LIMIT)
            return None
        steps = pc.until(examples=2, counter=counter)
        with comm_limit(comm, 0.1), pytest.raises(pc.StallError):
            next(steps)
        stalled.set()
        left = list(steps)
        comm.mean(0.0, timeout=LIMIT)
        return left

    assert run_ranks(2, program, ranks_per_node=1, progress="caller")[1] == [0, 1]


@contextlib.contextmanager
def comm_limit(comm, seconds):
    """Set the default time limit."""
    kept, comm._context.timeout = comm._context.timeout, seconds
    yield
    comm._context.timeout = kept


def test_until_the_work_of_all_is_done():
    def program(comm):
        with comm.counter() as counter:
            steps = []
            for step in pc.until(examples=100, counter=counter, batch=32):
                time.sleep(0.002 * comm.rank)
                steps.append(step)
            return steps

    all_steps = run_ranks(3, program)
    assert sum(map(len, all_steps)) == 4, "the last one is incomplete"
    assert all(steps == list(range(len(steps))) for steps in all_steps)


def test_until_a_time_is_over():
    begin = time.monotonic()
    steps = 0
    for step in pc.until(seconds=0.1):
        assert step == steps
        steps += 1
        time.sleep(0.03)
    assert time.monotonic() - begin >= 0.1
    assert 1 <= steps <= 4
    assert list(pc.until(seconds=0)) == []


def test_until_the_earlier_of_both():
    def program(comm):
        counter = comm.counter()
        assert list(pc.until(seconds=0, examples=5, counter=counter)) == []
        return len(list(pc.until(seconds=math.inf, examples=5, counter=counter)))

    assert sum(run_ranks(2, program)) == 5


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "expected seconds, examples, or both"),
        ({"seconds": -1}, "seconds: expected"),
        ({"examples": 5}, "expected examples and counter together"),
        ({"seconds": 1, "counter": object()}, "expected examples and counter together"),
        ({"examples": 5, "counter": object()}, "counter: expected the result of Communicator.counter"),
        ({"seconds": 1, "batch": 2}, "batch: expected 1 without a counter"),
    ],
)
def test_loops_that_are_refused(options, text):
    with pytest.raises((ValueError, TypeError), match=text):
        pc.until(**options)
