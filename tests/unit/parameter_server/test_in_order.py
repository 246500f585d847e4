"""servers="node": a rank that is held in the middle of its work on the weights, and all that comes behind it."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from gate import Gate
from pushes import wait_for_pushes

import pycollectives as pc
from pycollectives.testing import loopback, run_ranks

LIMIT = 30.0
COUNT = 1 << 18
"""Elements: some tens of blocks."""
TICKETS = 1024
"""Places of work that is not done, as csrc/services/parameter_server/pipeline.h has it."""

BEHIND = r"parameter server 'own', pull \(waits for the work of rank 0 on the weights\): not complete after "


def made(comm, dtype="f8", *, sync, count=COUNT, update=None, workers=None):
    """A server that does not look at gradients before it uses them: a gate is reached in the work."""
    like = np.zeros(count, dtype)
    return comm.parameter_server(
        like, sync=sync, update=update, servers="node", workers=workers, nan="accept", name="own"
    )


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2"])
@pytest.mark.parametrize("place", ["gradient", "out"])
def test_a_push_behind_a_rank_that_is_held(dtype, place):
    """A StallError names that rank. The push is done nonetheless, once, and the caller's memory is his at once."""
    gate = Gate(np.full(COUNT, -1, dtype))
    met = threading.Barrier(2)

    def program(comm):
        ps = made(comm, dtype, sync=pc.servers.ASP(), update=pc.servers.SGD(1.0))
        w = np.zeros(COUNT, dtype)
        gradient = np.full(COUNT, -1 - comm.rank, dtype)
        if comm.rank == 0:
            met.wait(LIMIT)
            ps.push_pull(*{"gradient": (gate.array, w), "out": (gradient, gate.array)}[place], timeout=LIMIT)
        else:
            with gate:
                met.wait(LIMIT)
                wait_for_pushes(ps, 0, 1)
                with pytest.raises(pc.StallError, match=BEHIND):
                    ps.push_pull(gradient, w, timeout=0.2)
                assert ps.clock == 1
                gradient[:] = w[:] = 100
                with pytest.raises(pc.StallError, match=BEHIND.replace("pull", "push 2")):
                    ps.push_pull(gradient, w, timeout=0.05)  # there is no room for a second
                assert ps.clock == 1
            ps.pull(w.copy(), timeout=LIMIT)
            assert (w == 100).all()
        met.wait(LIMIT)
        ps.pull(w, timeout=LIMIT)
        met.wait(LIMIT)
        return w.min(), w.max(), ps.version

    assert run_ranks(2, program) == [(3, 3, 2)] * 2


def test_who_reads_behind_it_may_try_again_and_is_in_nobodys_way():
    gate = Gate(np.full(COUNT, -1.0))
    met = threading.Barrier(3)

    def program(comm):
        ps = made(comm, sync=pc.servers.ASP(), update=pc.servers.SGD(1.0))
        w = np.zeros(COUNT)
        if comm.rank == 0:
            met.wait(LIMIT)
            ps.push_pull(gate.array, w, timeout=LIMIT)
        elif comm.rank == 1:
            with gate:
                met.wait(LIMIT)
                wait_for_pushes(ps, 0, 1)
                with pytest.raises(pc.StallError, match=BEHIND):
                    ps.pull(w, timeout=0.1)
            ps.pull(w, timeout=LIMIT)
            assert (w == 1).all()
        else:
            met.wait(LIMIT)
        met.wait(LIMIT)
        if comm.rank == 2:
            ps.push_pull(np.full(COUNT, -1.0), w, timeout=LIMIT)
            assert (w == 2).all()
        met.wait(LIMIT)

    run_ranks(3, program)


def test_who_is_held_while_it_reads_has_one_moment():
    """Who comes behind it changes nothing before it has read that."""
    gate = Gate(np.full(COUNT, 5.0))
    met = threading.Barrier(2)

    def program(comm):
        ps = made(comm, sync=pc.servers.ASP(), update=pc.servers.SGD(1.0))
        w = np.zeros(COUNT)
        if comm.rank == 0:
            met.wait(LIMIT)
            ps.pull(gate.array, timeout=LIMIT)
            w = gate.array
        else:
            with gate:
                met.wait(LIMIT)
                gate.wait_until_written()
                with pytest.raises(pc.StallError, match=BEHIND):
                    ps.push_pull(np.full(COUNT, -1.0), w, timeout=0.2)
            ps.pull(w, timeout=LIMIT)
        met.wait(LIMIT)
        return w.min(), w.max()

    assert run_ranks(2, program) == [(0, 0), (1, 1)]


def test_behind_a_function_nothing_is_handed_over():
    """A call of a function cannot be left to the engine."""
    inside, go_on = threading.Event(), threading.Event()

    def update(weights, gradient):
        weights -= gradient
        inside.set()
        assert go_on.wait(LIMIT)

    def program(comm):
        ps = made(comm, sync=pc.servers.ASP(), update=update)
        w = np.zeros(COUNT)
        if comm.rank == 0:
            ps.push_pull(np.full(COUNT, -1.0), w, timeout=LIMIT)
            return w.min(), w.max()
        assert inside.wait(LIMIT)
        with pytest.raises(pc.StallError, match=BEHIND.replace("pull", "push 1")):
            ps.push_pull(np.full(COUNT, -1.0), w, timeout=0.2)
        assert ps.clock == 0
        go_on.set()
        ps.push_pull(np.full(COUNT, -2.0), w, timeout=LIMIT)
        return w.min(), w.max()

    assert run_ranks(2, program) == [(1, 1), (3, 3)]


def test_a_function_waits_until_nobody_reads():
    """Before its push counts: a time limit ends that. Who has closed is in the way no longer than that either."""
    gate = Gate(np.full(COUNT, 5.0))
    met = threading.Barrier(2)

    def update(weights, gradient):
        weights -= gradient

    def program(comm):
        ps = made(comm, sync=pc.servers.ASP(), update=update)
        w = np.zeros(COUNT)
        if comm.rank == 0:
            met.wait(LIMIT)
            ps.pull(gate.array, timeout=LIMIT)
            met.wait(LIMIT)
            return gate.array.max()
        if comm.rank == 2:
            ps.leave()
            return 0
        with gate:
            met.wait(LIMIT)
            gate.wait_until_written()
            with pytest.raises(pc.StallError, match=BEHIND.replace("pull", "push 1")):
                ps.push_pull(np.full(COUNT, -1.0), w, timeout=0.2)
            assert ps.clock == 0
        ps.push_pull(np.full(COUNT, -1.0), w, timeout=LIMIT)
        met.wait(LIMIT)
        return w.max()

    assert run_ranks(3, program) == [0, 1, 0]


def test_who_calls_a_function_while_it_waits_answers_others():
    """It takes out a worker that has closed: so the update of the others becomes due."""
    inside, go_on = threading.Event(), threading.Event()

    def update(weights, gradient):
        weights -= gradient
        inside.set()
        assert go_on.wait(LIMIT)

    def program(comm):
        ps = made(comm, sync=pc.servers.BSP(), update=update, workers=[0, 2])
        other = comm.parameter_server(
            np.zeros(1), sync=pc.servers.BSP(), update=pc.servers.SGD(1.0), servers="node", workers=[0, 1], name="other"
        )
        w = np.zeros(COUNT)
        if comm.rank == 0:
            ps.push(np.full(COUNT, -1.0))
            pushed.set()
            ps.pull(w, timeout=LIMIT)
            return w.max()
        if comm.rank == 2:
            assert pushed.wait(LIMIT)
            while not waits_in_call(comms[0]):
                time.sleep(0.001)
            ps.leave()
            return 0
        assert inside.wait(LIMIT)
        try:
            with pytest.raises(pc.StallError, match="have not arrived, but wait in 'own': rank 0"):
                other.push_pull(np.zeros(1), np.zeros(1), timeout=0.2)
        finally:
            go_on.set()
        return 0

    pushed = threading.Event()
    comms = loopback(3)

    def waits_in_call(comm):
        return any("wait" in collective for collective in comm.flight_record()["collectives"])

    assert run_ranks(comms, program) == [1, 0, 0]


def test_elastic_averaging_behind_a_rank_that_is_held():
    """What a part of the weights became was given to the caller before; the rest comes later, and both are one pull."""
    gate = Gate(np.full(COUNT, 8.0))
    met = threading.Barrier(2)

    def program(comm):
        ps = made(comm, sync=pc.servers.EAMSGD(1, 0.5))
        w = np.full(COUNT, 2.0)
        if comm.rank == 0:
            met.wait(LIMIT)
            ps.push_pull(gate.array, gate.array, timeout=LIMIT)  # 8 and a center of 0 meet at 4
            return gate.array.min(), gate.array.max()
        with gate:
            met.wait(LIMIT)
            wait_for_pushes(ps, 0, 1)
            with pytest.raises(pc.StallError, match=BEHIND):
                ps.push_pull(w, w, timeout=0.2)
            assert ps.clock == 1
            w[:] = 100
        ps.pull(w, timeout=LIMIT)  # 2 and a center of 4 meet at 3
        return w.min(), w.max()

    assert run_ranks(2, program) == [(4, 4), (3, 3)]


def test_no_update_is_lost_when_there_is_no_place_for_it():
    """As many places are taken as there are: a decision waits for one, that of `leave` too."""
    count = 1 << 14
    gate = Gate(np.full(count, -3.0))
    met = threading.Barrier(4)

    def meet(times):
        for _ in range(times):
            met.wait(LIMIT)

    def program(comm):
        ps = made(comm, sync=pc.servers.BSP(), count=count, update=pc.servers.SGD(1.0), workers=[0, 1, 2])
        w = np.zeros(count)
        if comm.rank == 0:
            with gate:
                held = threading.Thread(target=ps.push, args=(gate.array,))
                held.start()
                meet(3)
            held.join(LIMIT)
        elif comm.rank == 1:
            wait_for_pushes(ps, 0, 1)
            ps.push(np.full(count, -6.0))
            meet(3)
        elif comm.rank == 2:
            meet(2)
            leaves = threading.Thread(target=ps.suspend)
            leaves.start()  # its gradient is not waited for any more: the update is due
            leaves.join(0.2)
            assert leaves.is_alive()
            meet(1)
            leaves.join(LIMIT)
        else:
            meet(1)
            for _ in range(TICKETS - 2):  # the places of the two pushes are taken
                ps.pull(w, timeout=LIMIT)
            with pytest.raises(pc.StallError, match=BEHIND):
                ps.pull(w, timeout=0)
            meet(2)
        met.wait(LIMIT)
        if comm.rank == 3:
            ps.pull(w, timeout=LIMIT)
            assert (w == 4.5).all()
        met.wait(LIMIT)

    run_ranks(4, program)


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("offset", [0, 1, 3, 8])
def test_one_pass_has_the_bits_of_two(dtype, offset):
    """Of `push_pull`, which updates and gives the weights at once, and of `push` and `pull`; whatever the alignment."""
    rng = np.random.default_rng(offset)
    count = 70_001
    with loopback(1)[0] as comm:
        like = rng.standard_normal(count).astype(dtype)
        one, two = (
            comm.parameter_server(like, sync=pc.servers.ASP(), update=pc.servers.SGD(0.3), servers="node")
            for _ in range(2)
        )
        memory = np.zeros(count * like.itemsize + 64, np.uint8)
        bytes_in = slice(offset * 4, offset * 4 + like.nbytes)
        in_one, in_two = memory[bytes_in].view(dtype), np.zeros_like(like)
        for _ in range(3):
            gradient = rng.standard_normal(count).astype(dtype)
            one.push_pull(gradient, in_one)
            two.push(gradient)
            two.pull(in_two)
            assert in_one.tobytes() == in_two.tobytes()
        again = np.zeros_like(like)
        one.pull(again)
        assert again.tobytes() == in_two.tobytes()
        assert memory[: bytes_in.start].max(initial=0) == memory[bytes_in.stop :].max() == 0
        one.push_pull(in_two, in_two)  # in place
        two.push(again)
        two.pull(again)
        assert again.tobytes() == in_two.tobytes()


def test_nothing_is_lost_or_torn_under_short_time_limits():
    """Each push adds 1 everywhere. Whoever runs out of time: it counts once, and what is pulled is whole."""
    pushes, ranks = 40, 6
    met = threading.Barrier(ranks)

    def program(comm):
        ps = made(comm, "f4", sync=pc.servers.ASP(), update=pc.servers.SGD(1.0))
        rng = np.random.default_rng(comm.rank)
        w = np.zeros(COUNT, "f4")
        while ps.clock < pushes:
            gradient = np.full(COUNT, -1, "f4")
            try:
                ps.push_pull(gradient, w, timeout=rng.choice([0, 1e-4, 1e-3, LIMIT]))
                assert np.ptp(w) == 0
                assert w[0] == ps.version
            except pc.StallError:
                gradient[:] = 100  # it is the caller's again
        met.wait(LIMIT)
        ps.pull(w, timeout=LIMIT)
        met.wait(LIMIT)
        return w.min(), w.max()

    assert run_ranks(ranks, program) == [(pushes * ranks, pushes * ranks)] * ranks


def test_close_while_a_function_updates():
    """It does not wait for the function. Who comes next takes out the worker that has closed, and waits for nobody."""
    servers = {}
    closed = threading.Event()

    def update(weights, gradient):
        weights -= gradient
        if weights[0] != 2 or closed.is_set():
            return
        closing = threading.Thread(target=servers[0].close)
        closing.start()
        closing.join(LIMIT)
        assert not closing.is_alive()
        closed.set()

    def program(comm):
        servers[comm.rank] = ps = made(comm, sync=pc.servers.BSP(), update=update)
        w = np.zeros(COUNT)
        ps.push_pull(np.full(COUNT, -1.0), w, timeout=LIMIT)
        if comm.rank == 0:
            pushed.wait(LIMIT)
            ps.push_pull(np.full(COUNT, -1.0), w, timeout=LIMIT)
            return w.min(), w.max()
        ps.push(np.full(COUNT, -1.0))
        pushed.set()
        ps.pull(w, timeout=LIMIT)
        assert closed.wait(LIMIT)
        ps.push_pull(np.full(COUNT, -4.0), w, timeout=LIMIT)
        return w.min(), w.max()

    pushed = threading.Event()
    assert run_ranks(2, program) == [(2, 2), (6, 6)]


def test_who_vanishes_is_taken_out_while_another_call_is_under_way(capfd):
    """A rank that waits in two collectives looks at both, however it waits."""
    met = threading.Barrier(3)

    def until_closed(served):
        with pytest.raises(pc.ClosedError):
            served.push_pull(np.zeros(8), np.zeros(8), timeout=LIMIT)

    def program(comm):
        w = np.zeros(8)
        ps = comm.parameter_server(
            w, sync=pc.servers.BSP(patience=1), update=pc.servers.SGD(1.0), servers="node", name="own"
        )
        served = comm.parameter_server(
            w, sync=pc.servers.BSP(), update=pc.servers.SGD(1.0), servers=1, workers=[0, 1, 2]
        )
        for _ in range(2):
            ps.push_pull(w, w, timeout=LIMIT)
        if comm.rank < 2:
            waits = threading.Thread(target=until_closed, args=(served,))
            waits.start()
            ps.push_pull(w, w, timeout=LIMIT)
            served.leave()
            waits.join(LIMIT)
        met.wait(LIMIT)

    run_ranks(3, program)
    assert capfd.readouterr().err.count("rank 2 has stopped pushing while others wait") == 1
