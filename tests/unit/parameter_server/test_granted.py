"""Servers on the workers' node: a worker that is held in the work that it was granted, and all that comes behind it."""

from __future__ import annotations

import contextlib
import threading
import time

import numpy as np
import pytest
from gate import Gate
from pushes import wait_for_pushes

import pycollectives as pc
from pycollectives.testing import run_ranks

LIMIT = 30.0
COUNT = 1 << 18
"""Elements: some tens of blocks."""
TICKETS = 1024
"""Places of work that is not done, as csrc/services/parameter_server/pipeline.h has it."""

BEHIND = r"parameter server 'own', {} \(waits for the work of rank 2 on the weights\): not complete after "


def made(comm, dtype="f8", *, sync=None, count=COUNT, servers=1, workers=None):
    """A server that does not look at gradients before it uses them: a gate is reached in the work."""
    like = np.zeros(count, dtype)
    sync = sync or pc.servers.ASP()
    return comm.parameter_server(
        like, sync=sync, update=pc.servers.SGD(1.0), servers=servers, workers=workers, nan="accept", name="own"
    )


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2"])
@pytest.mark.parametrize("place", ["gradient", "out"])
@pytest.mark.parametrize("servers", [1, 2])
def test_a_push_behind_a_worker_that_is_held(dtype, place, servers):
    """A StallError names that worker. The push is done nonetheless, once, and the caller's memory is his at once.

    With two servers the gate is in the second's part: the first's is done by then, and is not done again.
    """
    gate = Gate(np.full(COUNT, -1, dtype))
    met = threading.Barrier(3)

    def program(comm):
        ps = made(comm, dtype, servers=servers, workers=[1, 2])
        w = np.zeros(COUNT, dtype)
        gradient = np.full(COUNT, {0: 0, 1: -2, 2: -1}[comm.rank], dtype)
        if comm.rank == 2:
            met.wait(LIMIT)
            ps.push_pull(*{"gradient": (gate.array, w), "out": (gradient, gate.array)}[place], timeout=LIMIT)
        elif comm.rank == 1:
            with gate:
                met.wait(LIMIT)
                wait_for_pushes(ps, 2, 1)
                with pytest.raises(pc.StallError, match=BEHIND.format("pull after push 1")):
                    ps.push_pull(gradient, w, timeout=0.2)
                assert ps.clock == 1
                gradient[:] = w[:] = 100
                with pytest.raises(pc.StallError, match="'own', push 2"):
                    ps.push_pull(gradient, w, timeout=0.05)  # there is no room for a second
                assert ps.clock == 1
            ps.pull(w.copy(), timeout=LIMIT)
            assert (w == 100).all()
        else:
            met.wait(LIMIT)
        met.wait(LIMIT)
        ps.pull(w, timeout=LIMIT)
        met.wait(LIMIT)
        return w.min(), w.max(), ps.version

    assert run_ranks(3, program) == [(3, 3, 2)] * 3


def test_a_push_behind_a_worker_that_is_held_while_it_reads():
    """Work that changes the weights waits for who reads them."""
    gate = Gate(np.full(COUNT, 5.0))
    met = threading.Barrier(3)

    def program(comm):
        ps = made(comm)
        w = np.zeros(COUNT)
        if comm.rank == 2:
            met.wait(LIMIT)
            ps.pull(gate.array, timeout=LIMIT)
            w = gate.array
        elif comm.rank == 1:
            with gate:
                met.wait(LIMIT)
                gate.wait_until_written()
                with pytest.raises(pc.StallError, match=BEHIND.format("pull after push 1")):
                    ps.push_pull(np.full(COUNT, -1.0), w, timeout=0.2)
            ps.pull(w, timeout=LIMIT)
        else:
            met.wait(LIMIT)
        met.wait(LIMIT)
        return w.min(), w.max()

    assert run_ranks(3, program)[1:] == [(1, 1), (0, 0)]


def test_close_behind_a_worker_that_is_held():
    """Who closes leaves its work to the engine, and the end of the program waits for that."""
    gate = Gate(np.full(COUNT, -1.0))
    met = threading.Barrier(3)

    def program(comm):
        ps = made(comm)
        w = np.zeros(COUNT)
        if comm.rank == 2:
            met.wait(LIMIT)
            ps.push_pull(gate.array, w, timeout=LIMIT)
            met.wait(LIMIT)
            end = time.monotonic() + LIMIT
            while w.min() < 3 and time.monotonic() < end:  # a pull waits for no push of another rank
                ps.pull(w, timeout=LIMIT)
        elif comm.rank == 1:
            with gate:
                met.wait(LIMIT)
                wait_for_pushes(ps, 2, 1)
                closing = threading.Thread(target=close_when_pushed, args=(ps,))
                closing.start()
                with pytest.raises(pc.ClosedError):
                    ps.push_pull(np.full(COUNT, -2.0), w, timeout=LIMIT)
                closing.join(LIMIT)
            met.wait(LIMIT)
        else:
            for _ in range(2):
                met.wait(LIMIT)
        return w.min(), w.max()

    def close_when_pushed(ps):
        while ps.clock == 0:
            time.sleep(0.001)
        ps.leave()

    assert run_ranks(3, program)[2] == (3, 3)


def test_the_end_waits_for_work_that_is_left():
    """All have closed, one of them in the middle of its work: what the server does behind work that is left is done.

    Else the server would never end.
    """
    gate = Gate(np.full(COUNT, -1.0))
    met = threading.Barrier(4)

    def program(comm):
        ps = made(comm)
        w = np.zeros(COUNT)
        if comm.rank == 2:
            closing = threading.Thread(target=close_when_met, args=(ps,))
            met.wait(LIMIT)
            closing.start()
            with contextlib.suppress(pc.ClosedError):
                ps.push_pull(gate.array, w, timeout=LIMIT)
            closing.join(LIMIT)
        elif comm.rank == 1:
            with gate:
                met.wait(LIMIT)
                wait_for_pushes(ps, 2, 1)
                with pytest.raises(pc.StallError, match=BEHIND.format("pull after push 1")):
                    ps.push_pull(np.full(COUNT, -2.0), w, timeout=0.2)
                ps.leave()
                met.wait(LIMIT)
                met.wait(LIMIT)
                time.sleep(0.1)  # so that it hears of the others
        else:
            for _ in range(2):
                met.wait(LIMIT)
            if comm.rank == 3:
                ps.push(np.full(COUNT, -3.0))  # the server's work
            ps.leave()
            met.wait(LIMIT)

    def close_when_met(ps):
        met.wait(LIMIT)
        ps.leave()
        met.wait(LIMIT)

    run_ranks(4, program)


def test_what_is_left_is_done_once_whether_the_server_has_claimed_it_or_not():
    """All places are taken: the server has claimed one rank's work, and gets no place for it.

    That rank cannot have its offer back: the work is granted when there is a place, and the rank's engine does it. The
    server has not come to the work of the next rank, which takes its offer back: the server does that work.

    The first place is that of a reader that is held. Others read behind it; their places are not free before its own.
    """
    count = 1 << 14
    gate = Gate(np.full(count, 5.0))
    shut, full, claimed, left_claimed, left_offered = (threading.Event() for _ in range(5))

    def wait_until_claimed(ps):
        """The server claims what it can between two answers."""
        wait_for_pushes(ps, 1, 1)
        for _ in range(3):
            ps.server_statistics(timeout=LIMIT)

    def close_when_claimed(ps):
        assert claimed.wait(LIMIT)
        ps.leave()

    def program(comm):
        ps = made(comm, count=count, workers=[1, 2, 3, 4])
        w = np.zeros(count)
        gradient = np.full(count, -float(comm.rank))
        if comm.rank == 1:
            assert full.wait(LIMIT)
            closing = threading.Thread(target=close_when_claimed, args=(ps,))
            closing.start()
            with pytest.raises(pc.ClosedError):
                ps.push_pull(gradient, w, timeout=LIMIT)
            gradient[:] = 100
            closing.join(LIMIT)
            left_claimed.set()
        elif comm.rank == 2:
            assert shut.wait(LIMIT)
            ps.pull(gate.array, timeout=LIMIT)
        elif comm.rank == 3:
            with gate:
                shut.set()
                gate.wait_until_written()
                for _ in range(TICKETS - 1):  # the place of the reader that is held is taken
                    ps.pull(w, timeout=LIMIT)
                with pytest.raises(pc.StallError):
                    ps.pull(w, timeout=0)
                full.set()
                wait_until_claimed(ps)
                claimed.set()
                assert left_claimed.wait(LIMIT)
                assert left_offered.wait(LIMIT)
        elif comm.rank == 4:
            assert claimed.wait(LIMIT)
            with pytest.raises(pc.StallError, match="'own', push 1: "):
                ps.push_pull(gradient, w, timeout=0)
            gradient[:] = 100
            assert ps.clock == 1
            left_offered.set()
            ps.pull(w, timeout=LIMIT)
        return w.min(), w.max()

    assert run_ranks(5, program)[4] == (1 + 4, 1 + 4)


@pytest.mark.parametrize("sync", [pc.servers.ASP(), pc.servers.Rescaled()])
@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("dtype", ["f4", "f2"])
def test_nothing_is_lost_or_torn_under_short_time_limits(sync, servers, dtype):
    """Each push adds the same everywhere. Whoever runs out of time: it counts once, and what is pulled is whole."""
    pushes, ranks = 20, 6
    met = threading.Barrier(ranks)

    def program(comm):
        ps = made(comm, dtype, sync=sync, servers=servers)
        rng = np.random.default_rng(comm.rank)
        w = np.zeros(COUNT, dtype)
        while comm.rank in ps.workers and ps.clock < pushes:
            gradient = np.full(COUNT, -1, dtype)
            try:
                ps.push_pull(gradient, w, timeout=rng.choice([0, 1e-4, 1e-3, LIMIT]))
                for part in np.split(w, servers):
                    assert np.ptp(part) == 0
            except pc.StallError:
                gradient[:] = 100  # it is the caller's again
        met.wait(LIMIT)
        ps.pull(w, timeout=LIMIT)
        met.wait(LIMIT)
        return ps.version, w.min(), w.max()

    made_by_all = pushes * (ranks - servers)
    for version, least, most in run_ranks(ranks, program, timeout=2 * LIMIT):
        assert version == made_by_all
        assert least == most
        assert isinstance(sync, pc.servers.Rescaled) or most == made_by_all
