"""Closing a communicator: what a rank can still do, and what the others learn."""

import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import pycollectives as pc
from pycollectives import _testing
from pycollectives.testing import loopback, run_ranks


@pytest.mark.parametrize("ranks_per_node", [1, "all"])
def test_nothing_begins_after_a_close_that_ran_into_its_limit(ranks_per_node):
    """The others count messages to find out when the last one has arrived: a rank that has closed sends no new ones."""
    may_close = threading.Event()

    def program(comm):
        if comm.rank == 1:
            may_close.wait(30)
            comm.close()
            return
        with pytest.raises(pc.StallError, match="not closed on rank 1"):
            comm.close(timeout=0.2)
        with pytest.raises(pc.ClosedError):
            comm.preduce(np.ones(4), [0, 1])
        with pytest.raises(pc.ClosedError):
            comm.partial_allreduce(np.ones(4), policy="solo")
        may_close.set()
        comm.close()

    run_ranks(2, program, ranks_per_node=ranks_per_node)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_threads_that_close_the_same_communicator(size):
    """Whoever returns finds it closed; what is freed at the end is freed once."""
    engines = _testing.busy_loopback(size)

    def close(engine):
        engine.close(timeout=10.0)
        return _testing.freed(engine)

    for _ in range(2):  # the second time all is done already
        with ThreadPoolExecutor(3 * size) as threads:
            assert all(threads.map(close, engines * 3))


def test_a_thread_that_waits_for_another_to_close():
    first, other = _testing.busy_loopback(2)
    with ThreadPoolExecutor(2) as threads:
        waits_for_rank_1 = threads.submit(first.close, timeout=30.0)
        text = ""
        while "another thread of this rank is closing it" not in text:  # or it has not begun
            with pytest.raises(pc.StallError) as caught:
                first.close(timeout=0.05)
            text = str(caught.value)
        assert not waits_for_rank_1.done()
        threads.submit(other.close, timeout=30.0).result(30)
        waits_for_rank_1.result(30)


def test_a_signal_handler_that_closes_what_is_being_closed():
    first, other = _testing.busy_loopback(2)
    before = signal.signal(signal.SIGALRM, lambda *_: first.close())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(pc.ClosedError, match=r"this thread is in its close\(\) already"):
            first.close(timeout=30.0)
    finally:
        signal.signal(signal.SIGALRM, before)
    with ThreadPoolExecutor(2) as threads:
        for closing in [threads.submit(engine.close, timeout=30.0) for engine in (first, other)]:
            closing.result(30)


@pytest.mark.parametrize("leaver", [0, -1])
@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_a_rank_that_closes_ends_a_creation_on_all_others(size, leaver):
    """None of them has a time limit. Its neighbours in the tree are told that it left, and tell the others."""

    def program(comm):
        if comm.rank == leaver % size:
            return "closes"
        with pytest.raises(pc.StallError) as caught:
            comm.partial_allreduce(np.ones(4), name="never", policy="solo")
        return str(caught.value)

    texts = run_ranks(size, program, ranks_per_node=1)
    assert texts.pop(leaver) == "closes"
    assert any(f"rank {leaver % size} left the communicator" in text for text in texts)
    assert all("left the communicator" in text or "gave up waiting" in text for text in texts)


@pytest.mark.parametrize("ranks_per_node", [1, "all"])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_thread_that_creates_while_another_closes(size, ranks_per_node):
    """Either all ranks have made the collective, or it is refused or given up on each of them."""

    def program(comm):
        start = threading.Barrier(2)

        def create():
            start.wait()
            try:
                comm.partial_allreduce(np.ones(4), policy="solo")
            except (pc.ClosedError, pc.StallError):
                return False
            return True

        comm.partial_allreduce(np.ones(4), policy="solo")
        with ThreadPoolExecutor(1) as other:
            made = other.submit(create)
            start.wait()
            comm.close()
            return made.result(30)

    for _ in range(20):
        assert len(set(run_ranks(size, program, ranks_per_node=ranks_per_node))) == 1


def test_a_creation_under_checks_while_all_ranks_close():
    """With PYC_CHECK=1: the rank that closes makes no other call, and the other has a thread that closes too."""

    def program(comm):
        comm.partial_allreduce(np.ones(4), policy="solo")
        with ThreadPoolExecutor(1) as other:
            if comm.rank == 1:
                made = other.submit(comm.partial_allreduce, like=np.ones(4))
                time.sleep(0.1)
            comm.close()
            if comm.rank == 1:
                with pytest.raises(pc.ClosedError):
                    made.result(30)

    run_ranks(2, program, check=True)


def test_a_communicator_that_another_thread_aborts():
    """Whoever waits in a call of it is let go."""

    def program(comm):
        if comm.rank == 0:
            with ThreadPoolExecutor(1) as other:
                creation = other.submit(comm.partial_allreduce, like=np.ones(4))
                time.sleep(0.1)
                comm.abort()
                with pytest.raises(pc.ClosedError):
                    creation.result(30)
        else:
            time.sleep(0.2)

    run_ranks(2, program)


@pytest.mark.parametrize("progress", ["thread", "caller"])
@pytest.mark.parametrize("late", [0, 1, 2])
def test_a_rank_that_comes_after_the_others_gave_up(late, progress):
    """Nothing drives its engine until it comes; still, the call fails on all ranks."""
    gave_up = threading.Barrier(3)

    def program(comm):
        if comm.rank == late:
            gave_up.wait(30)
        with pytest.raises(pc.StallError):
            comm.is_same_on_all_ranks(np.ones(4))
        if comm.rank != late:
            gave_up.wait(30)
        comm.abort()

    run_ranks(loopback(3, timeout=0.2, progress=progress, ranks_per_node=1), program)


def test_a_signal_handler_that_closes_during_a_creation():
    def program(comm):
        refused = []

        def close(*_):
            with pytest.raises(pc.ClosedError, match="this thread is in a collective call"):
                comm.close()
            refused.append(True)
            first.set()

        if comm.rank == 1:
            first.wait(30)
            comm.partial_allreduce(np.ones(4), policy="solo")
            return None
        before = signal.signal(signal.SIGALRM, close)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            comm.partial_allreduce(np.ones(4), policy="solo")
        finally:
            signal.signal(signal.SIGALRM, before)
        return refused

    first = threading.Event()
    ranks = loopback(2)
    with ThreadPoolExecutor(1) as other, ranks[0] as comm:
        peer = other.submit(lambda: run_ranks(ranks[1:], program))
        assert program(comm) == [True]
    peer.result(30)


@pytest.mark.parametrize("size", [1, 3])
def test_threads_that_close_a_communicator_with_open_collectives(size):
    def program(comm):
        for _ in range(2):
            comm.partial_allreduce(np.ones(4), policy="solo").contribute(np.ones(4))
        with ThreadPoolExecutor(3) as threads:
            list(threads.map(lambda _: comm.close(), range(3)))
        return comm.closed

    for _ in range(10):
        assert all(run_ranks(size, program))


def test_closing_waits_for_a_creation_that_is_under_way():
    """It is complete on all ranks, though the rank that came first wants to close meanwhile."""
    closing = threading.Event()

    def program(comm):
        if comm.rank == 1:
            closing.wait(30)
            time.sleep(0.2)
            comm.partial_allreduce(np.ones(4), policy="solo")
            comm.close()
            return "made"
        with ThreadPoolExecutor(1) as threads:
            made = threads.submit(comm.partial_allreduce, like=np.ones(4), policy="solo")
            time.sleep(0.2)
            closing.set()
            comm.close()
            return "made" if made.result() else "not made"

    assert run_ranks(2, program, timeout=30.0) == ["made"] * 2


def test_abort_frees_a_thread_that_waits_for_a_rank_that_does_not_come():
    freed = threading.Event()

    def program(comm):
        if comm.rank == 1:
            assert freed.wait(30)
            comm.abort()
            return
        with ThreadPoolExecutor(1) as threads:
            made = threads.submit(comm.partial_allreduce, like=np.ones(4), policy="solo")
            time.sleep(0.2)
            comm.abort()
            with pytest.raises(pc.ClosedError, match="closed while a call waited"):
                made.result(timeout=20)
        freed.set()

    run_ranks(2, program, timeout=60.0)


def test_an_aborted_communicator_is_not_polled_once_all_have_closed():
    def program(comm):
        comm.partial_allreduce(np.ones(4), policy="solo")
        if comm.rank == 0:
            comm.abort()
        else:
            comm.close()
        return comm._engine

    aborted, *_ = run_ranks(3, program)
    until = time.monotonic() + 30
    while _testing.is_driven(aborted):
        assert time.monotonic() < until
        time.sleep(0.01)


def test_the_program_ends_while_a_daemon_is_in_a_call():
    """Python does not give the lock back to a thread then, and takes the thread for gone."""
    program = """if True:
        import threading, time
        from pycollectives.testing import loopback
        (comm,) = loopback(1)
        def advance():
            while True:
                comm.advance()
        for _ in range(4):
            threading.Thread(target=advance, daemon=True).start()
        time.sleep(0.1)
        """
    for _ in range(3):
        ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
        assert ended.returncode == 0, ended.stderr
