"""The parameter server over MPI: every gradient once, exact updates, and workers that are late, leave and return."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from mpi4py import MPI
from oracle import LIMIT
from servers import EACH_IS_AN_UPDATE, settled, where

import pycollectives as pc

pytestmark = pytest.mark.one_communicator

WORLD = MPI.COMM_WORLD
P = WORLD.size


@where
@pytest.mark.parametrize("sync", EACH_IS_AN_UPDATE, ids=repr)
@pytest.mark.parametrize("elements", [1, 5000])
def test_every_gradient_once(comm, where, sync, elements):
    """Push k of a worker adds 1 to its own place; workers nap, and make different numbers of pushes."""
    steps = 12
    w = np.zeros((P, steps, -(-elements // P)))
    pushes = [steps - rank % 3 for rank in range(P)]
    rng = np.random.default_rng([P, comm.rank])
    with comm.parameter_server(w, sync=sync, update=pc.servers.SGD(1.0), **where) as ps:
        if comm.rank in ps.workers:
            for k in range(pushes[comm.rank]):
                gradient = np.zeros_like(w)
                gradient[comm.rank, k] = -1
                if k % 2:
                    ps.push_pull(gradient, w, timeout=LIMIT)
                else:
                    request = ps.push(gradient)
                    gradient[:] = 7  # may be used again at once
                    ps.pull(w, timeout=LIMIT)
                    assert request.test()
                assert w[comm.rank, : k + 1].min() == 1
                assert ps.clock == k + 1
                if rng.random() < 0.2:
                    time.sleep(0.003)
            ps.suspend()
        final = settled(ps, w)
        for rank in range(P):
            done = pushes[rank] if rank in ps.workers else 0
            assert (final[rank, :done] == 1).all()
            assert (final[rank, done:] == 0).all()
        counted = ps.server_statistics(timeout=LIMIT)
        assert counted.version == sum(pushes[rank] for rank in ps.workers) == sum(counted.staleness)
        assert [worker.pushes for worker in counted.workers] == [pushes[rank] for rank in ps.workers]
        assert all(worker.discarded == 0 for worker in counted.workers)


@where
@pytest.mark.parametrize(
    "update", [pc.servers.SGD(0.1), pc.servers.SGD(0.1, momentum=0.9), pc.servers.Adam(0.01)], ids=repr
)
@pytest.mark.parametrize(("dtype", "count"), [("f8", 3), ("f4", 100_003), ("f2", 1000)])
def test_bsp_is_serial_training(comm, where, update, dtype, count):
    if count < P:
        pytest.skip("fewer elements than servers")
    steps = 5
    w = np.random.default_rng(P).standard_normal(count).astype(dtype)
    gradients = np.random.default_rng([P, comm.rank]).standard_normal((steps, count)).astype(dtype)
    reference, state = w.astype("f8"), [np.zeros(count), np.zeros(count)]
    with comm.parameter_server(w, sync=pc.servers.BSP(), update=update, **where) as ps:
        means = gradients.astype("f8") * (comm.rank in ps.workers) / len(ps.workers)
        WORLD.Allreduce(MPI.IN_PLACE, means)
        for number in range(1, steps + 1):
            reference = stepped(update, reference, means[number - 1], state, number)
            if comm.rank in ps.workers:
                ps.push_pull(gradients[number - 1], w, timeout=LIMIT)
                tolerance = {"f8": 1e-12, "f4": 1e-5, "f2": 2e-3}[dtype]
                steep = (
                    1e-3 if isinstance(update, pc.servers.Adam) and dtype == "f4" else tolerance
                )  # where a mean is near 0
                np.testing.assert_allclose(w.astype("f8"), reference, rtol=tolerance, atol=steep)
                assert ps.version == number
                assert ps.last_push == pc.PushInfo(number, number, 0, True)
        final = settled(ps, w)
    assert WORLD.allreduce(final.astype("f8").sum()) == pytest.approx(P * final.astype("f8").sum(), rel=1e-9)


def stepped(update, weights, gradient, state, number):
    if isinstance(update, pc.servers.Adam):
        state[0] = update.beta1 * state[0] + (1 - update.beta1) * gradient
        state[1] = update.beta2 * state[1] + (1 - update.beta2) * gradient**2
        mean = state[0] / (1 - update.beta1**number)
        scale = np.sqrt(state[1] / (1 - update.beta2**number))
        return weights - update.rate * mean / (scale + update.epsilon)
    state[0] = update.momentum * state[0] + gradient
    return weights - update.rate * state[0]


@where
@pytest.mark.parametrize(
    "sync",
    [
        pc.servers.BSP(),
        pc.servers.Rennala(3),
        pc.servers.Ringleader(),
        pc.servers.MindFlayer(1, 100.0),
        pc.servers.ASP(),
    ],
    ids=lambda s: type(s).__name__,
)
@pytest.mark.parametrize("dtype", ["f4", "f2"])
def test_means_of_equal_gradients(comm, where, sync, dtype):
    """Of gradients of ones every mean is 1, whatever is gathered: the weights say how many updates there were."""
    count = 40_000
    w = np.zeros(count, dtype)
    ones = np.ones(count, dtype)
    with comm.parameter_server(w, sync=sync, update=pc.servers.SGD(1.0), **where) as ps:
        if comm.rank in ps.workers:
            for _ in range(7):
                ps.push_pull(ones, w, timeout=LIMIT)
                if len(ps.servers) <= 1:
                    np.testing.assert_allclose(w, -float(ps.version), rtol=1e-3)
        final = settled(ps, w)
        counted = ps.server_statistics(timeout=LIMIT)
        WORLD.Barrier()  # who closes may complete an update
        np.testing.assert_allclose(final, -float(counted.version), rtol=1e-3)
        assert sum(worker.pushes for worker in counted.workers) == 7 * len(ps.workers)
        assert counted.version >= 7 or not isinstance(sync, pc.servers.BSP | pc.servers.ASP)


@where
def test_elastic_averaging(comm, where):
    """What a worker's weights lose the center gains."""
    count, alpha = 30_000, 0.25
    x = np.full(count, comm.rank + 1.0)
    lost = np.zeros(count)
    with comm.parameter_server(np.zeros(count), sync=pc.servers.EAMSGD(1, alpha), **where) as ps:
        if comm.rank in ps.workers:
            for k in range(5):
                before = x.copy()
                if k % 2:
                    ps.push_pull(x, x, timeout=LIMIT)  # in place
                else:
                    ps.push(x)
                    ps.pull(x, timeout=LIMIT)
                lost += before - x
            center = np.empty(count)
            ps.pull(center, timeout=LIMIT)  # has not pushed since: the center
        final = settled(ps, x)
        np.testing.assert_allclose(final, WORLD.allreduce(lost), rtol=1e-12)
        if len(ps.workers) == 1 and comm.rank in ps.workers:
            worker, middle = comm.rank + 1.0, 0.0
            for _ in range(5):
                step = alpha * (worker - middle)
                worker, middle = worker - step, middle + step
            np.testing.assert_allclose(x, worker)
            np.testing.assert_allclose(final, middle)


@where
def test_pulls_are_whole(comm, where):
    """Each shard is of one moment while others push; versions only grow."""
    count = 200_000
    w = np.zeros(count)
    with comm.parameter_server(w, sync=pc.servers.ASP(), update=pc.servers.SGD(1.0), **where) as ps:
        ps.pull(w, timeout=LIMIT)
        assert w.min() >= w.max() - 6 * P * 100
        edges = np.array([0, count])
        if len(ps.servers) > 1:
            line = 8
            units = -(-count // line)
            edges = np.array([units * s // len(ps.servers) * line for s in range(len(ps.servers) + 1)])
        last = 0
        for k in range(12):
            if comm.rank in ps.workers and k % 2:
                ps.push(np.full(count, -1.0))
            ps.pull(w, timeout=LIMIT)
            for first, end in itertools.pairwise(edges):
                assert np.ptp(w[first:end]) == 0
            assert ps.version >= last
            assert ps.version <= w.min() if len(ps.servers) > 1 else ps.version == w[0]
            last = ps.version
        final = settled(ps, w)
        assert (final == 6 * len(ps.workers)).all()


@where
def test_leave_and_return(comm, where):
    """Under BSP nobody waits for a worker that has left; it takes part again when it pushes."""
    w = np.zeros(1000)
    with comm.parameter_server(w, sync=pc.servers.BSP(), update=pc.servers.SGD(1.0), **where) as ps:
        away = ps.workers[-1]
        if comm.rank == away:
            ps.push_pull(-np.ones(1000), w, timeout=LIMIT)
            ps.suspend()
        elif comm.rank in ps.workers:
            for _ in range(5):
                ps.push_pull(-np.ones(1000), w, timeout=LIMIT)
        rounds = 1 if len(ps.workers) == 1 else 5
        np.testing.assert_allclose(settled(ps, w), rounds)
        if comm.rank in ps.workers and comm.rank != away:
            ps.suspend()
        WORLD.Barrier()
        if comm.rank == away:
            ps.push_pull(-np.ones(1000), w, timeout=LIMIT)
        WORLD.Barrier()
        counted = ps.server_statistics(timeout=LIMIT)
        assert counted.workers[ps.workers.index(away)].pushes == 2


@where
def test_ends_in_any_order(comm, where):
    """Ranks make different numbers of pushes and close at once: nobody waits for who has closed."""
    ps = comm.parameter_server(np.zeros(50_000), sync=pc.servers.BSP(), update=pc.servers.SGD(1.0), **where)
    w = np.zeros(50_000)
    if comm.rank in ps.workers:
        for _ in range(1 + 3 * comm.rank):
            ps.push_pull(w, w, timeout=LIMIT)
    ps.leave()
    with pytest.raises(pc.ClosedError):
        ps.pull(w)


@pytest.mark.parametrize("nan", ["reject", "skip", "accept"])
@where
def test_values_that_are_not_finite(comm, where, nan):
    w = np.zeros(5000, "f4")
    gradient = np.zeros(5000, "f4")
    gradient[4321] = np.inf
    with comm.parameter_server(w, sync=pc.servers.BSP(), update=pc.servers.SGD(1.0), nan=nan, **where) as ps:
        if comm.rank in ps.workers:
            if nan == "reject":
                with pytest.raises(ValueError, match="finite"):
                    ps.push(gradient)
                assert ps.clock == 0
            else:
                ps.push_pull(gradient, w, timeout=LIMIT)
                assert ps.clock == 1
                assert np.isfinite(w).all() == (nan == "skip")
        final = settled(ps, w)
        assert np.isfinite(final).all() == (nan != "accept")
        counted = ps.server_statistics(timeout=LIMIT)
        assert counted.version == (0 if nan == "reject" else 1)
        assert sum(worker.discarded for worker in counted.workers) == 0
        assert sum(worker.given_up for worker in counted.workers) == (len(ps.workers) if nan == "skip" else 0)
        WORLD.Barrier()


@pytest.mark.mpi(min_size=2)
def test_mismatch(comm):
    with pytest.raises(pc.MismatchError, match="sync"):
        comm.parameter_server(np.zeros(9), sync=pc.servers.SSP(comm.rank), update=pc.servers.SGD(1.0))
