"""Servers that serve: closing while another thread is in a call, sleep, and servers that do not answer."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import pycollectives as pc
from pycollectives import _testing
from pycollectives.testing import loopback, run_ranks

LIMIT = 30.0
MANY = np.zeros(20_000)


def is_in_call(comm):
    return "wait" in comm.flight_record()["collectives"][-1]


@pytest.mark.parametrize("ranks_per_node", [1, "all"])
def test_who_has_closed_does_not_come_back(ranks_per_node):
    """Its push has begun, and another thread closes before it is sent: it is not sent then, and nobody waits for it."""
    met = threading.Barrier(3)

    def program(comm):
        outcome = []

        def push():
            try:
                ps.push(MANY)
            except pc.ClosedError:
                outcome.append("refused")

        def push_meanwhile():
            pushing.start()
            while not _testing.is_wanted(comm._engine):
                time.sleep(0.001)

        pushing = threading.Thread(target=push)
        hook = _testing.CalledAtAbort(comm._engine, push_meanwhile if comm.rank == 1 else int)
        sync = pc.servers.BSP()
        ps = comm.parameter_server(MANY, sync=sync, update=pc.servers.SGD(1.0), workers=[1, 2])
        met.wait(LIMIT)
        if comm.rank == 1:
            comm._engine.abort()
            pushing.join(LIMIT)
        met.wait(LIMIT)
        hook.end()
        if comm.rank == 2:
            for _ in range(2):
                ps.push_pull(MANY + 1, MANY.copy(), timeout=LIMIT / 2)
            outcome = [[worker.present for worker in ps.server_statistics(timeout=LIMIT).workers], ps.version]
        met.wait(LIMIT)
        if comm.rank == 1:
            comm.abort()
        return outcome

    assert run_ranks(3, program, ranks_per_node=ranks_per_node, timeout=2 * LIMIT) == [
        [],
        ["refused"],
        [[False, True], 2],
    ]


@pytest.mark.parametrize("seed", range(8))
def test_an_answer_that_nobody_waits_for_any_more_does_not_hold_up_the_end(seed):
    """A server hears from the coordinator that all have closed before it hears a question of before."""
    met = threading.Barrier(3)

    def program(comm):
        ps = comm.parameter_server(
            MANY, sync=pc.servers.ASP(), update=pc.servers.SGD(1.0), servers=2, workers=[0, 1, 2]
        )
        met.wait(LIMIT)
        if comm.rank < 2:
            ps.leave()
            met.wait(LIMIT)
            return
        met.wait(LIMIT)
        time.sleep(0.2)  # the others' goodbyes have come
        pulling = threading.Thread(target=pull, args=(ps,))
        pulling.start()
        while not is_in_call(comm):
            time.sleep(0.001)
        ps.leave()
        pulling.join(LIMIT)

    def pull(ps):
        with pytest.raises(pc.ClosedError, match="closed"):
            ps.pull(MANY.copy(), timeout=LIMIT)

    run_ranks(loopback(3, ranks_per_node=1, delay=0.1, seed=seed, timeout=10.0), program)


@pytest.mark.parametrize("servers", [1, "node"])
def test_who_waits_for_others_gives_its_core_away(servers):
    """No message is near while the others compute: an engine that says so would keep looking."""
    waits = threading.Event()
    idle = threading.Event()

    def program(comm):
        ps = comm.parameter_server(
            MANY, sync=pc.servers.BSP(), update=pc.servers.SGD(1.0), servers=servers, workers=[0, 1], name="own"
        )
        if comm.rank == 0:
            assert idle.wait(LIMIT)
        if comm.rank == 1:
            watching = threading.Thread(target=watch, args=(comm,))
            watching.start()
        if comm.rank in ps.workers:
            ps.push_pull(MANY, MANY.copy(), timeout=LIMIT)

    def watch(comm):
        while not is_in_call(comm):
            time.sleep(0.001)
        waits.set()
        while _testing.is_busy(comm._engine):
            time.sleep(0.01)
        idle.set()

    run_ranks(3, program)
    assert waits.is_set()


@pytest.mark.parametrize("servers", [1, 2])
def test_a_push_that_no_server_answers_is_done_later(servers):
    """The worker would do the work itself, but not for ever: then the server finds the gradient in the slot. Once."""
    stalled, done = threading.Event(), threading.Event()

    def program(comm):
        where = {"servers": servers, "workers": [2]}
        ps = comm.parameter_server(MANY, sync=pc.servers.ASP(), update=pc.servers.SGD(1.0), name="own", **where)
        if comm.rank < 2:
            assert stalled.wait(LIMIT)
            while not done.is_set():
                comm.advance()
            return None
        w, gradient = MANY.copy(), MANY + 3
        with pytest.raises(pc.StallError, match="'own', push 1"):
            ps.push_pull(gradient, w, timeout=0.2)
        gradient[:] = 100
        assert ps.clock == 1
        stalled.set()
        ps.pull(w, timeout=LIMIT)
        ps.push_pull(MANY + 1, w, timeout=LIMIT)
        done.set()
        return w.min(), w.max(), ps.version

    assert run_ranks(3, program, progress="caller")[2] == (-4, -4, 2)


def test_an_answer_to_an_earlier_question_is_too_old():
    """A pull is given up, and its answer comes before the next pull, which wants the worker's own push."""
    stalled, done = threading.Event(), threading.Event()

    def program(comm):
        ps = comm.parameter_server(MANY, sync=pc.servers.ASP(), update=pc.servers.SGD(1.0), workers=[1])
        if comm.rank == 0:
            assert stalled.wait(LIMIT)
            while not done.is_set():
                comm.advance()
            return None
        w = MANY.copy()
        with pytest.raises(pc.StallError, match="pull of version 0 or later"):
            ps.pull(w, timeout=0.2)
        stalled.set()
        for _ in range(5):
            ps.server_statistics(timeout=LIMIT)  # there and back: the answer takes two of these
        ps.push_pull(MANY + 1, w, timeout=LIMIT)
        done.set()
        return w.min(), w.max(), ps.version

    assert run_ranks(2, program, ranks_per_node=1, progress="caller")[1] == (-1, -1, 1)


@pytest.mark.large
def test_weights_for_another_node_are_of_one_moment():
    """An update that takes the server several turns; who pulls meanwhile waits for it."""
    large = np.zeros(1_000_000)

    def program(comm):
        with comm.parameter_server(large, sync=pc.servers.ASP(), update=pc.servers.SGD(1.0)) as ps:
            w = large.copy()
            if comm.rank in ps.workers:
                for _ in range(5):
                    ps.push_pull(large + 1, w, timeout=LIMIT)
                    assert w.min() == w.max() == -ps.version

    run_ranks(3, program, ranks_per_node=1)


@pytest.mark.parametrize("servers", [1, "node"])
def test_one_thread_at_a_time_asks_for_the_last_push(servers):
    """A call of another thread may change it meanwhile."""

    def program(comm):
        ps = comm.parameter_server(
            MANY, sync=pc.servers.BSP(), update=pc.servers.SGD(1.0), servers=servers, workers=[1, 2]
        )
        if comm.rank == 2:
            assert refused.wait(LIMIT)
        if comm.rank == 1:
            pushing = threading.Thread(target=ps.push_pull, args=(MANY + 1, MANY.copy()), kwargs={"timeout": LIMIT})
            pushing.start()
            while not is_in_call(comm):
                time.sleep(0.001)
            with pytest.raises(RuntimeError, match="one thread at a time"):
                assert ps.last_push is None
            refused.set()
            pushing.join(LIMIT)
            assert ps.last_push == pc.PushInfo(1, 1, 0, True)
        elif comm.rank == 2:
            ps.push_pull(MANY + 1, MANY.copy(), timeout=LIMIT)

    refused = threading.Event()
    run_ranks(3, program)


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("sync", [pc.servers.ASP(), pc.servers.MindFlayer(2, 0.05), pc.servers.Ringleader()], ids=repr)
def test_one_model_at_the_end(sync, servers):
    """All leave, meet, and pull: nothing of a worker is still on its way, and the weights are the same."""
    together = threading.Barrier(4)

    def program(comm):
        ps = comm.parameter_server(
            np.zeros(3), sync=sync, update=pc.servers.SGD(1.0), servers=servers, workers=range(4), name="own"
        )
        out = np.zeros(3)
        for _ in range(3):
            ps.push(np.ones(3))
        ps.suspend()
        together.wait(LIMIT)
        ps.pull(out, timeout=LIMIT)
        together.wait(LIMIT)
        return out.tolist(), ps.version

    for seed in range(12):
        ends = run_ranks(loopback(4, ranks_per_node=1, delay=0.003, seed=seed, timeout=20.0), program)
        assert ends == [ends[0]] * 4, seed


def test_suspend_has_the_limit_of_the_communicator():
    """The server's program makes no call meanwhile, and so no message is read."""
    left = threading.Event()

    def program(comm):
        ps = comm.parameter_server(np.zeros(4), servers=1, update=pc.servers.SGD(0.1))
        waited = None
        if comm.rank == 1:
            begin = time.monotonic()
            with pytest.raises(pc.StallError):
                ps.suspend()
            waited = time.monotonic() - begin
            left.set()
        else:
            assert left.wait(LIMIT)
        comm.abort()
        return waited

    with ThreadPoolExecutor(2) as threads:
        _, waited = threads.map(program, loopback(2, progress="caller", timeout=1.0))
    assert 0.9 < waited < LIMIT / 2


def test_leave_does_not_wait_for_the_server():
    """As above: the server's program makes no call until the worker has left."""
    left = threading.Event()

    def program(comm):
        ps = comm.parameter_server(np.zeros(4), servers=1, update=pc.servers.SGD(0.1))
        took = 0.0
        if comm.rank == 1:
            begin = time.monotonic()
            ps.leave()
            took = time.monotonic() - begin
            left.set()
        else:
            assert left.wait(LIMIT)
        comm.abort()
        return took

    with ThreadPoolExecutor(2) as threads:
        _, took = threads.map(program, loopback(2, progress="caller", timeout=LIMIT))
    assert took < LIMIT / 10
