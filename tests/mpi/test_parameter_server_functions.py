"""A parameter server whose update is a function: servers of all kinds call it, each on its own part of the weights."""

from __future__ import annotations

import time

import numpy as np
import pytest
from mpi4py import MPI
from oracle import LIMIT
from servers import EACH_IS_AN_UPDATE, WHERE, settled, where

import pycollectives as pc

WORLD = MPI.COMM_WORLD
P = WORLD.size


class Momentum:
    """SGD that keeps its velocity in the memory of the server."""

    def __init__(self):
        self.velocity = 0.0
        self.shapes = set()

    def __call__(self, weights, gradient):
        assert weights.shape == gradient.shape
        self.shapes.add(weights.shape)
        self.velocity = 0.5 * self.velocity + gradient
        weights -= 0.25 * self.velocity


@where
@pytest.mark.parametrize("shape", [(7, 5), (300, 400)])
def test_bsp_is_serial_training_bit_for_bit(comm, where, shape):
    if isinstance(where["servers"], str) and len(set(comm._context.nodes)) == 1:
        pytest.skip("the function is called on the rank that pushes last: it has no velocity of its own")
    rng = np.random.default_rng(P)
    start = rng.standard_normal(shape)
    w, reference, serial, update = start.copy(), start.copy(), Momentum(), Momentum()
    with comm.parameter_server(w, sync=pc.servers.BSP(), update=update, **where) as ps:
        for _ in range(6):
            gradients = rng.standard_normal((P, *shape))
            mean = np.zeros(shape)
            for rank in ps.workers:
                mean += 1 / len(ps.workers) * gradients[rank]
            serial(reference, mean)
            if comm.rank in ps.workers:
                ps.push_pull(gradients[comm.rank], w, timeout=LIMIT)
                assert (w == reference).all()
        assert (settled(ps, w) == reference).all()
        if len(ps.servers) == 1:
            assert update.shapes == ({shape} if ps.is_server else set())
        else:
            assert {len(shape) for shape in update.shapes} == ({1} if ps.is_server else set())


@where
@pytest.mark.parametrize("sync", EACH_IS_AN_UPDATE, ids=repr)
@pytest.mark.parametrize("dtype", ["f8", "f2"])
def test_every_gradient_once(comm, where, sync, dtype):
    """Of gradients of equal elements each adds its square; workers make different numbers of pushes and close."""
    count = 3000
    pushes = [9 - rank % 3 for rank in range(P)]

    def update(weights, gradient):
        weights += gradient**2

    w = np.zeros(count, dtype)
    with comm.parameter_server(w, sync=sync, update=update, **where) as ps:
        if comm.rank in ps.workers:
            for k in range(pushes[comm.rank]):
                gradient = np.full(count, 3, dtype)
                if k % 2:
                    ps.push_pull(gradient, w, timeout=LIMIT)
                else:
                    ps.push(gradient)
                    gradient[:] = 7  # may be used again at once
                    ps.pull(w, timeout=LIMIT)
                assert w.min() >= 9 * (k + 1)
            ps.suspend()
        assert (settled(ps, w) == 9 * sum(pushes[rank] for rank in ps.workers)).all()


@where
def test_what_is_pulled_while_a_function_runs_is_whole(comm, where):
    count = 50_000

    def update(weights, gradient):
        half = len(weights) // 2
        weights[:half] += gradient[:half]
        time.sleep(0.003)
        weights[half:] += gradient[half:]

    w = np.zeros(count)
    with comm.parameter_server(w, sync=pc.servers.ASP(), update=update, **where) as ps:
        for _ in range(8):
            if comm.rank in ps.workers:
                ps.push(np.ones(count))
            ps.pull(w, timeout=LIMIT)
            if len(ps.servers) <= 1:
                assert np.ptp(w) == 0
                assert ps.version == w[0]
        assert (settled(ps, w) == 8 * len(ps.workers)).all()


@where
def test_ends_in_any_order(comm, where):
    """A function that is slow has changed the weights by all gradients when the communicator is closed."""
    changed = []

    def update(weights, gradient):
        time.sleep(0.01)
        changed.append(gradient[0])

    with pc.Communicator(WORLD) as own:
        ps = own.parameter_server(np.zeros(P), sync=pc.servers.ASP(), update=update, **where)
        if own.rank in ps.workers:
            for _ in range(own.rank + 1):
                ps.push(np.ones(P))
        ps.leave()
        with pytest.raises(pc.ClosedError):
            ps.pull(np.zeros(P))
    calls = WORLD.allreduce(len(changed))
    pushed = sum(rank + 1 for rank in ps.workers)
    assert calls == pushed * max(1, len(ps.servers))


@pytest.mark.parametrize("where", [WHERE[name] for name in ("one", "two", "all", "last")], ids=repr)
@pytest.mark.parametrize("sync", [pc.servers.BSP(), pc.servers.ASP()], ids=repr)
def test_an_exception_is_an_error_on_all_ranks(where, sync, capfd):
    """Workers are told by name; the server's program fails too, though it is in no call. Nobody waits for ever."""
    last = max(range(P) if where["servers"] == P else [P - 1] if "workers" in where else range(where["servers"]))

    def update(weights, gradient):
        if WORLD.rank == last:
            raise KeyError("of the function")
        weights += gradient

    told = rf"'own': the update function has raised an exception on rank {last}, which prints it: the weights are unus"
    comm = pc.Communicator(WORLD)
    ps = comm.parameter_server(np.zeros(40), sync=sync, update=update, name="own", **where)
    if comm.rank in ps.workers:
        for push in (ps.push_pull, lambda g, w, timeout: (ps.push(g), ps.pull(w, timeout))):
            with pytest.raises(RuntimeError, match=told):
                push(np.ones(40), np.zeros(40), timeout=LIMIT)
    if comm.rank == last:
        with pytest.raises(RuntimeError, match="'own': the update function has raised an exception") as raised:
            comm.close(timeout=LIMIT)
        assert isinstance(raised.value.__cause__, KeyError)
        assert "KeyError: 'of the function'" in capfd.readouterr().err
    comm.close(timeout=LIMIT)
    assert comm.closed
