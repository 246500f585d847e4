"""A communicator with `on_failure="continue"` before any death; tests/launch/test_continue.py kills ranks."""

from __future__ import annotations

import time
from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI

import pycollectives as pc
from pycollectives.support.launchers import FAULT_TOLERANT

WORLD = MPI.COMM_WORLD
LIMIT = 30.0
COUNT = 16
"""Elements; at least one for each server."""

pytestmark = pytest.mark.skipif("Open MPI" not in MPI.Get_library_version(), reason="MPICH cannot continue")


@pytest.fixture
def comm(monkeypatch):
    monkeypatch.setenv(FAULT_TOLERANT, "1")  # no rank dies here
    with pc.Communicator(WORLD, on_failure="continue", timeout=LIMIT) as comm:
        yield comm


def test_its_members_are_all_ranks(comm):
    changes = []
    comm.on_change(changes.append)
    assert comm.members == tuple(range(WORLD.size))
    assert (comm.epoch, comm.on_failure, changes) == (0, "continue", [])
    assert comm.mean(comm.rank) == (WORLD.size - 1) / 2
    assert comm.is_same_on_all_ranks(np.arange(3))
    assert comm.is_same_on_all_ranks(np.array([comm.rank])) == (WORLD.size == 1)


@pytest.mark.parametrize("kind", ["partial_allreduce", "partial_reduce", "neighbor_averaging", "pairwise_averaging"])
def test_calls_from_c_are_refused(comm, kind):
    """They would not continue after a death."""
    with getattr(comm, kind)(np.zeros(COUNT)) as made, pytest.raises(TypeError, match=f"{kind}.*: calls from C cannot"):
        made._c_handle()
    with pytest.raises(TypeError, match="preduce: calls from C cannot continue"):
        comm._c_preduce(COUNT, "float64", "sum")


@pytest.mark.parametrize("late", ["accumulate", "replace", "drop"])
@pytest.mark.parametrize("missed", ["latest", "sum"])
@pytest.mark.parametrize("policy", ["solo", "majority", "full"])
def test_calls_are_those_of_a_partial_allreduce(comm, policy, missed, late):
    """Every contribution is in one round, unless `late` discards it."""
    mine = np.zeros(WORLD.size, np.int64)
    mine[comm.rank] = 1
    total = np.zeros_like(mine)
    out = np.empty_like(mine)
    with comm.partial_allreduce(mine, policy=policy, missed=missed, late=late) as ar:
        for step in range(20):
            if step % 3 == 0:
                result, info = ar.allreduce(mine)
            elif step % 3 == 1:
                result, info = ar.allreduce(mine, out)
                assert result is out
            else:
                request = ar.contribute(mine)
                (info,) = pc.wait_all([request])
                assert request.done
                assert request.wait() == info
                result = ar.result
            assert (info.epoch, info.lost) == (0, ())
            total += result
        ar.flush()
        total += ar.result
        counts = ar.statistics()
        assert counts.contributions == 20
        assert counts.rounds == ar.rounds
    if missed == "sum" and late == "accumulate":
        assert (total == 20).all()
    assert ar.closed


def test_a_round_that_stalls_goes_on(comm):
    with comm.partial_allreduce(np.zeros(2), policy="full") as ar:
        if comm.rank == comm.size - 1:
            WORLD.Barrier()
            result, _ = ar.allreduce(np.ones(2))
        else:
            with pytest.raises(pc.StallError, match="The data is contributed"):
                ar.allreduce(np.ones(2), timeout=0.2)
            WORLD.Barrier()
            ar.flush()
            result = ar.result
        if comm.rank == comm.size - 1:
            ar.flush()
    assert result.tolist() == [comm.size] * 2


@pytest.mark.parametrize("servers", ["node", 1])
@pytest.mark.parametrize("sync", ["bsp", "asp", "eamsgd:1:0.5"])
def test_calls_are_those_of_a_parameter_server(comm, sync, servers):
    update = None if sync.startswith("eamsgd") else pc.servers.SGD(1.0)
    workers = range(comm.size)
    with comm.parameter_server(np.zeros(COUNT), sync=sync, update=update, servers=servers, workers=workers) as ps:
        out = np.zeros(COUNT)
        for step in range(10):
            if step % 2 == 0:
                ps.push_pull(np.ones(COUNT), out)
            else:
                info = ps.push(np.ones(COUNT)).wait()
                assert info.clock == ps.clock == step + 1
                ps.pull(out)
        ps.flush()
        comm.mean(0.0)
        ps.pull(out)
        statistics = ps.server_statistics()
        assert [worker.pushes for worker in statistics.workers] == [10] * comm.size
        assert [worker.rank for worker in statistics.workers] == list(workers)
        assert ps.last_push.clock == ps.statistics().pushes == 10
        if sync == "asp":
            assert out.tolist() == [-10.0 * comm.size] * COUNT
        elif sync == "bsp":
            assert np.abs(out + 10).max() < 1e-9
        comm.mean(0.0)
        ps.suspend()
        with pytest.raises(ValueError, match="expected finite values"):
            ps.push(np.full(COUNT, np.nan))
        assert ps.clock == 10
    assert ps.closed


def test_what_does_not_continue_is_refused(comm):
    with pytest.raises(RuntimeError, match="continues by itself"):
        comm.shrink()
    with comm.partial_allreduce(np.zeros(2)) as ar:
        with pytest.raises(ValueError, match="expected None, as this collective is on the host"):
            ar.contribute(np.zeros(2), stream=1)
        with pytest.raises(ValueError, match=r"partial_allreduce\[0\]: expected shape \(2,\)"):
            ar.allreduce(np.zeros(3))


def test_queues(comm):
    if comm.size == 1:
        return
    with comm.update_queue(np.zeros(2), owner=0) as updates, comm.token_queue(owner=0, taker=1, tokens=2) as tokens:
        if comm.rank == 0:
            got = updates.dequeue(comm.size - 1, iteration=3)
            assert [(update.sender, update.update.tolist()) for update in got] == [
                (rank, [rank, rank]) for rank in range(1, comm.size)
            ]
            assert updates.size() == 0
            tokens.enqueue(3)
        else:
            updates.enqueue(np.full(2, float(comm.rank)), iteration=3)
        if comm.rank == 1:
            tokens.dequeue(5)
            assert tokens.size() == 0
        assert updates.statistics().memory_bytes > 0


def test_groups_that_the_program_names(comm):
    x = np.full(3, float(comm.rank))
    comm.preduce(x, range(comm.size))
    assert (x == (comm.size - 1) / 2).all()
    comm.preduce(x, [comm.rank], op="SUM")
    with pytest.raises(ValueError, match="group: expected ranks"):
        comm.preduce(x, [comm.size])
    x = np.full(3, 1.0)
    if comm.rank < 2 <= comm.size:
        comm.preduce(x, [0, 1], op="SUM")
        assert (x == 2).all()


def test_arguments_are_compared(comm):
    agreed = SimpleNamespace(signature=lambda: {"count": 3})
    assert comm.agree("check", lambda: agreed) is agreed
    differs = SimpleNamespace(signature=lambda: {"count": comm.rank // 2})
    if comm.size > 2:
        with pytest.raises(pc.MismatchError, match="check: arguments differ: count: 0 on ranks 0-1, 1 on rank"):
            comm.agree("check", lambda: differs)
        with pytest.raises(ZeroDivisionError if comm.rank == 0 else pc.MismatchError, match="division by zero"):
            comm.agree("check", lambda: agreed if comm.rank else 1 / 0)


def test_left_collectives_are_forgotten(comm):
    for _ in range(10):
        comm.mean(1.0)
    deadline = time.monotonic() + LIMIT
    while len(comm._membership._made) > 2:
        assert time.monotonic() < deadline
        comm.mean(1.0)


def test_arguments_of_the_communicator(monkeypatch):
    with pytest.raises(ValueError, match="on_failure: expected"):
        pc.Communicator(WORLD, on_failure="ignore", timeout=LIMIT)
    with pc.Communicator(WORLD, timeout=LIMIT) as comm:
        assert (comm.on_failure, comm.members, comm.epoch) == ("raise", tuple(range(WORLD.size)), 0)
        with pytest.raises(RuntimeError, match="never change with on_failure='raise'"):
            comm.on_change(print)
        with pytest.raises(TypeError, match="expected a function that takes a MembershipChange, got 3"):
            comm.on_change(3)
        with pytest.raises(TypeError, match="state: restore: expected a function, got 3"):
            comm.state(print, 3)
    with pytest.raises(ValueError, match=f"spares: expected at most {WORLD.size - 1}, got {WORLD.size}"):
        pc.Communicator(WORLD, on_failure="continue", spares=WORLD.size, timeout=LIMIT)
    if WORLD.size > 1:
        with pytest.raises(ValueError, match="spares: expected 0 with on_failure='raise', got 1"):
            pc.Communicator(WORLD, spares=1, timeout=LIMIT)
        with pytest.raises(ValueError, match="respawn: expected False with on_failure='raise', got True"):
            pc.Communicator(WORLD, respawn=True, timeout=LIMIT)
        with pytest.raises(ValueError, match="respawn: expected True, False or 'background', got 1"):
            pc.Communicator(WORLD, on_failure="continue", respawn=1, timeout=LIMIT)
        with pytest.raises(pc.MismatchError, match="respawn"):
            pc.Communicator(WORLD, on_failure="continue", respawn=WORLD.rank == 0, timeout=LIMIT)
        with pytest.raises(pc.MismatchError, match="spares"):
            pc.Communicator(WORLD, on_failure="continue", spares=int(WORLD.rank == 0), timeout=LIMIT)
    monkeypatch.setenv("PYC_CHECK", "1")
    with pytest.raises(ValueError, match="expected 'raise' with PYC_CHECK=1"):
        pc.Communicator(WORLD, on_failure="continue", timeout=LIMIT)


@pytest.mark.mpi(min_size=2)
def test_the_launcher_must_be_fault_tolerant(monkeypatch):
    monkeypatch.delenv(FAULT_TOLERANT, raising=False)
    with pytest.raises(RuntimeError, match="this job ends when a rank dies; start it with Open MPI 5, with mpirun"):
        pc.Communicator(WORLD, on_failure="continue", timeout=LIMIT)


@pytest.mark.mpi(min_size=2)
def test_ranks_must_agree():
    with pytest.raises(pc.MismatchError, match="on_failure"):
        pc.Communicator(WORLD, on_failure="continue" if WORLD.rank else "raise", timeout=LIMIT)


def test_models_may_have_any_shape(comm):
    with comm.neighbor_averaging(np.zeros((2, 3))) as averaging:
        averaging.average(np.ones(6))
        averaging.start(np.ones((6, 1))).wait()
        assert (averaging.result == 1).all()
        assert (averaging.final(np.empty((3, 2))) == 1).all()


def test_a_step_begins_where_the_last_was_tested(comm):
    with comm.push_sum(np.zeros(2)) as averaging:
        for _ in range(3):
            request = averaging.start(np.ones(2))
            while not request.test():
                pass
        assert (request.wait().step, averaging.steps) == (2, 3)
        assert averaging.result == pytest.approx(1)


def test_a_hop_and_a_model(comm):
    with comm.hop(np.zeros(2)) as hop:
        for _ in hop.iterations(5):
            hop.step(np.ones(2))
        assert (hop.iteration, hop.statistics().iterations) == (4, 5)
        assert hop.parameters == pytest.approx(5)
    with comm.pairwise_averaging(np.full(2, float(comm.rank))) as model:
        model.apply(np.ones(2))
        assert model.equalize() == pytest.approx(1 + (comm.size - 1) / 2)
        assert model.statistics().applied == 1


def test_groups_are_of_ranks(comm):
    weights = np.full(2, float(comm.rank))
    with comm.partial_reduce(weights, groups=pc.groups.StaticGroups(comm.size)) as reduce:
        info = reduce.average(weights, step=1)
        assert info.group == tuple(range(comm.size))
        assert weights == pytest.approx((comm.size - 1) / 2)
