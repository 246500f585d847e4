"""A function that updates the weights of servers that serve: who waits for it, and what happens when it fails."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import pycollectives as pc
from pycollectives.testing import loopback, run_ranks

LIMIT = 30.0
COUNT = 20_000
SHAPES = [1, "all"]

shapes = pytest.mark.parametrize("ranks_per_node", SHAPES)
everywhere = pytest.mark.parametrize("servers", [1, 2, [2]], ids=repr)


class Held:
    """An update that waits in its middle, on one rank, until it is let go."""

    def __init__(self):
        self.begun, self.may_end = threading.Event(), threading.Event()

    def __call__(self, weights, gradient):
        half = len(weights) // 2
        weights[:half] -= gradient[:half]
        self.begun.set()
        assert self.may_end.wait(LIMIT)
        weights[half:] -= gradient[half:]


@shapes
def test_a_server_goes_on_with_everything_else_while_a_function_runs(ranks_per_node):
    """It answers questions and takes part in other collectives. Who wants the weights waits, and gets them whole."""
    held = Held()

    def program(comm):
        ps = comm.parameter_server(np.zeros(COUNT), sync=pc.servers.ASP(), update=held, name="own")
        other = comm.partial_allreduce(np.zeros(2), policy=pc.Full())
        w = np.zeros(COUNT)
        if comm.rank == 1:
            ps.push(np.ones(COUNT))
        assert held.begun.wait(LIMIT)
        assert other.allreduce(np.ones(2), timeout=LIMIT)[0].sum() == 6
        assert ps.server_statistics(timeout=LIMIT).version == 1
        other.allreduce(np.ones(2), timeout=LIMIT)  # all have asked
        if comm.rank == 2:
            ps.push(np.ones(COUNT))  # behind it
            with pytest.raises(pc.StallError, match="'own', pull"):
                ps.pull(w, timeout=0.2)
        other.allreduce(np.ones(2), timeout=LIMIT)
        held.may_end.set()
        ps.pull(w, timeout=LIMIT)
        return np.ptp(w)

    assert run_ranks(3, program, ranks_per_node=ranks_per_node, timeout=LIMIT) == [0, 0, 0]


def test_a_close_that_waits_for_a_function_says_so():
    held = Held()
    met = threading.Barrier(2)

    def program(comm):
        ps = comm.parameter_server(np.zeros(COUNT), sync=pc.servers.ASP(), update=held, servers=1, name="own")
        if comm.rank == 1:
            ps.push(np.ones(COUNT))
        assert held.begun.wait(LIMIT)
        ps.leave()
        with pytest.raises(pc.StallError) as stall:
            comm.close(timeout=0.3)
        met.wait(LIMIT)
        held.may_end.set()
        comm.close(timeout=LIMIT)
        return str(stall.value)

    said, _ = run_ranks(2, program, timeout=LIMIT)
    assert said == "closing the communicator: 'own' is closed on every rank, and still at work; call close again"


@shapes
def test_the_end_waits_for_a_function(ranks_per_node):
    """All have closed while it runs; no update is lost, and its thread ends."""
    held = Held()
    done = []

    def update(weights, gradient):
        held(weights, gradient)
        done.append(gradient[0])

    def program(comm):
        ps = comm.parameter_server(np.zeros(COUNT), sync=pc.servers.ASP(), update=update, name="ends")
        if comm.rank > 0:
            for value in (1, 2):
                ps.push(np.full(COUNT, float(value)))
                assert held.begun.wait(LIMIT)
                if value == 1 and comm.rank == 1:
                    threading.Timer(0.2, held.may_end.set).start()
        ps.leave()

    run_ranks(3, program, ranks_per_node=ranks_per_node, timeout=LIMIT)
    assert sorted(done) == [1, 1, 2, 2]
    assert "update of ends" not in [thread.name for thread in threading.enumerate()]


@shapes
@everywhere
@pytest.mark.parametrize(
    "sync",
    [pc.servers.BSP(), pc.servers.SSP(1), pc.servers.Rennala(2), pc.servers.Ringleader(), pc.servers.Rescaled()],
    ids=repr,
)
def test_one_thread_calls_it_and_its_state_is_its_own(servers, sync, ranks_per_node):
    """The function of each server counts its own calls, and is called by no other thread."""
    functions = [Counting() for _ in range(3)]

    def program(comm):
        ps = comm.parameter_server(np.zeros(COUNT), sync=sync, update=functions[comm.rank], servers=servers)
        w = np.zeros(COUNT)
        if comm.rank in ps.workers:
            for _ in range(4):
                ps.push_pull(np.ones(COUNT), w, timeout=LIMIT)
            ps.suspend()
        return ps.servers

    (serving, *_) = run_ranks(3, program, ranks_per_node=ranks_per_node, timeout=LIMIT)
    for rank, function in enumerate(functions):
        assert len(function.threads) == (1 if rank in serving else 0)
        assert function.elements == ({COUNT // len(serving)} if rank in serving else set())
    assert len({functions[rank].calls for rank in serving}) == 1


class Counting:
    """What an update is called with, and by whom."""

    def __init__(self):
        self.calls, self.threads, self.elements = 0, set(), set()

    def __call__(self, weights, gradient):
        self.calls += 1
        self.threads.add(threading.get_ident())
        self.elements.add(len(weights))


def test_sixteen_bits_are_kept_in_thirty_two():
    def update(weights, gradient):
        assert weights.dtype == gradient.dtype == np.float32
        weights += np.float32(2**-12) * gradient

    def program(comm):
        ps = comm.parameter_server(np.ones(9, np.float16), sync=pc.servers.ASP(), update=update)
        w = np.ones(9, np.float16)
        if comm.rank == 1:
            for _ in range(4):
                ps.push_pull(np.ones(9, np.float16), w, timeout=LIMIT)
        return w.max()

    assert run_ranks(2, program)[1] == 1 + 2**-10


@shapes
@everywhere
@pytest.mark.parametrize("error", [KeyError, SystemExit], ids=lambda kind: kind.__name__)
def test_an_exception_reaches_every_rank(servers, ranks_per_node, error, capfd):
    """After two updates. Nobody waits for ever, and the communicator of the server says it in the end."""
    last = servers - 1 if isinstance(servers, int) else servers[0]
    told = f"'own': the update function has raised an exception on rank {last}, which prints it"

    def program(comm):
        calls = []

        def update(weights, gradient):
            calls.append(0)
            if comm.rank == last and len(calls) == 3:
                raise error("of the function")
            weights -= gradient

        ps = comm.parameter_server(np.zeros(COUNT), sync=pc.servers.BSP(), update=update, name="own", servers=servers)
        w = np.zeros(COUNT)
        if comm.rank in ps.workers:
            for _ in range(2):
                ps.push_pull(np.ones(COUNT), w, timeout=LIMIT)
            assert (w == -2).all()
            with pytest.raises(RuntimeError, match=told):
                ps.push_pull(np.ones(COUNT), w, timeout=LIMIT)
            for call in (ps.push, ps.pull):
                with pytest.raises(RuntimeError, match=told):
                    call(w)
        if comm.rank == last:
            with pytest.raises(RuntimeError, match="'own': the update function has raised") as raised:
                comm.close()
            assert isinstance(raised.value.__cause__, error)
        comm.close()

    run_ranks(3, program, ranks_per_node=ranks_per_node, timeout=LIMIT)
    assert f"{error.__name__}: " in capfd.readouterr().err


@shapes
@pytest.mark.parametrize("seed", range(3))
def test_no_rank_takes_weights_that_a_function_should_have_changed(ranks_per_node, seed):
    """However late messages are: who may read the weights knows that they are broken."""

    def program(comm):
        def update(weights, gradient):
            raise KeyError("of the function")

        ps = comm.parameter_server(np.zeros(COUNT), sync=pc.servers.ASP(), update=update, name="own")
        if comm.rank > 0:
            with pytest.raises(RuntimeError, match="'own': the update function has raised an exception on rank 0"):
                ps.push_pull(np.ones(COUNT), np.zeros(COUNT), timeout=LIMIT)
        else:
            with pytest.raises(RuntimeError, match="'own': the update function has raised"):
                comm.close()

    run_ranks(loopback(3, ranks_per_node=ranks_per_node, delay=0.1, seed=seed, timeout=LIMIT), program)
