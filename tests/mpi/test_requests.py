"""`Allreduce_init`: persistent requests in MPI's names and argument order."""

from __future__ import annotations

import contextlib
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from arrivals import rotating
from mpi4py import MPI
from oracle import LIMIT

import pycollectives as pc
from pycollectives import mpi_api
from pycollectives.support import native

WORLD = MPI.COMM_WORLD
RANKS = WORLD.size * (WORLD.size + 1) // 2  # 1 + ... + size


def test_start_and_wait():
    send, recv = np.zeros(3), np.full(3, np.nan)
    request = pc.Allreduce_init(send, recv, MPI.SUM, WORLD, policy=pc.Full())
    for step in range(4):
        send[:] = WORLD.rank + 1 + step
        request.Start()
        send[:] = np.nan  # handed over
        info = request.Wait(timeout=LIMIT)
        assert info.contributors == tuple(range(WORLD.size))
        assert (recv == RANKS + step * WORLD.size).all()
    request.Free()


def test_in_place():
    buffer = np.zeros(3, np.float32)
    request = pc.Allreduce_init(MPI.IN_PLACE, buffer, MPI.MAX, policy=pc.Full())
    for step in range(3):
        buffer[:] = WORLD.rank + step
        request.Start()
        request.Wait(timeout=LIMIT)
        assert (buffer == WORLD.size - 1 + step).all()
    request.Free()


def test_buffer_specifications():
    send, recv = np.full(8, WORLD.rank + 1, np.int32), np.zeros(8, np.int32)
    request = pc.Allreduce_init([send, 4, MPI.INT], [recv, 4, MPI.INT], MPI.SUM, WORLD, policy=pc.Full())
    request.Start()
    request.Wait(timeout=LIMIT)
    assert recv.tolist() == [RANKS] * 4 + [0] * 4
    request.Free()


def test_testing_until_done():
    send, recv = np.ones(2), np.zeros(2)
    request = pc.Allreduce_init(send, recv, op=MPI.SUM, comm=WORLD, policy=pc.Full())
    request.Start()
    while not request.Test():
        pass
    assert (recv == WORLD.size).all()
    assert request.Test()
    request.Free()


def test_partial_rounds_are_conserved():
    """Solo, under a rotating arrival script: the running totals are those of everybody's contributions."""
    send, recv = np.zeros(1, np.int64), np.zeros(1, np.int64)
    request = pc.Allreduce_init(send, recv, MPI.SUM, WORLD, policy=pc.Solo(), missed="sum")
    total = 0
    for step in range(10):
        time.sleep(rotating(WORLD.rank, WORLD.size, step) * 0.5e-3)
        send[0] = WORLD.rank + 1
        request.Start()
        request.Wait(timeout=LIMIT)
        total += int(recv[0])
    request.collective.flush(timeout=LIMIT)
    total += int(request.collective.result[0])
    assert total == 10 * RANKS
    request.Free()


@pytest.mark.parametrize("wait", [pc.PartialRequest.Waitall, pc.wait_all], ids=["Waitall", "wait_all"])
def test_several_requests_started_and_waited_for_together(wait):
    pairs = [(np.full(2, k + WORLD.rank + 1.0), np.zeros(2)) for k in range(3)]
    requests = [pc.Allreduce_init(send, recv, MPI.SUM, WORLD, policy=pc.Full()) for send, recv in pairs]
    for _ in range(3):
        pc.PartialRequest.Startall(requests)
        wait(requests)
        for k, (_, recv) in enumerate(pairs):
            assert (recv == RANKS + k * WORLD.size).all()
    for request in requests:
        request.Free()


def test_on_a_communicator_of_ours_that_stays_open():
    with pc.Communicator(WORLD) as comm:
        send, recv = np.ones(2), np.zeros(2)
        request = pc.Allreduce_init(send, recv, MPI.SUM, comm, policy=pc.Full())
        request.Start()
        request.Wait(timeout=LIMIT)
        request.Free()
        assert not comm.closed
        with comm.partial_allreduce(send, policy=pc.Full()) as ar:
            assert (ar.allreduce(send, timeout=LIMIT)[0] == comm.size).all()


def test_misuse():
    send, recv = np.ones(2), np.zeros(2)
    request = pc.Allreduce_init(send, recv, MPI.SUM, WORLD, policy=pc.Full())
    with pytest.raises(RuntimeError, match="never started"):
        request.Wait()
    request.Start()
    with pytest.raises(RuntimeError, match="active"):
        request.Start()
    request.Wait(timeout=LIMIT)
    request.Free()
    with pytest.raises(pc.ClosedError):
        request.Start()


@pytest.mark.parametrize("wrong", ["shape", "type", "read-only"])
def test_receive_buffers_that_are_refused_on_every_rank(wrong):
    recv = {"shape": np.zeros(3), "type": np.zeros(2, "f4"), "read-only": np.zeros(2)}[wrong]
    recv.flags.writeable = wrong != "read-only"
    with pytest.raises((ValueError, TypeError, BufferError), match="recvbuf"):
        pc.Allreduce_init(np.ones(2), recv, MPI.SUM, WORLD)


@pytest.mark.mpi(min_size=2)
def test_free_that_stalls_is_called_again(monkeypatch):
    monkeypatch.setenv("PYC_TIMEOUT", "2")
    comm = WORLD.Dup()
    request = pc.Allreduce_init(np.ones(1), np.zeros(1), comm=comm)
    comm.Barrier()
    if WORLD.rank == 0:
        with pytest.raises(pc.StallError, match=r"closing the communicator: .* is not closed on rank"):
            request.Free()
    comm.Barrier()
    monkeypatch.setenv("PYC_TIMEOUT", str(LIMIT))
    request.Free()
    request.Free()
    another = pc.Allreduce_init(np.ones(1), np.zeros(1), comm=comm)
    another.Start()
    assert another.Wait(timeout=LIMIT).contributors == tuple(range(WORLD.size))
    another.Free()
    comm.Free()


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("default", [False, True], ids=["timeout=", "PYC_TIMEOUT"])
@pytest.mark.parametrize("others", ["make nothing", "make the communicator"])
def test_a_request_that_other_ranks_do_not_make_keeps_its_limit(others, default, monkeypatch):
    comm = WORLD.Dup()  # on which no collective works afterwards
    if default:
        monkeypatch.setenv("PYC_TIMEOUT", "1")
    if WORLD.rank == 0:
        what = "Communicator: some ranks" if others == "make nothing" else "Allreduce_init: ranks? 1"
        begin = time.monotonic()
        with pytest.raises(pc.StallError, match=what):
            pc.Allreduce_init(np.ones(1), np.zeros(1), comm=comm, timeout=None if default else 1.0)
        assert time.monotonic() - begin < LIMIT / 3
    elif others == "make the communicator":
        made = pc.Communicator(comm, timeout=LIMIT)
        WORLD.Barrier()
        made.abort()
        return
    WORLD.Barrier()


def test_a_request_that_is_made_while_another_thread_frees_the_last(monkeypatch):
    """The other thread is between the turn of this one and what follows."""
    last = pc.Allreduce_init(np.ones(1), np.zeros(1), comm=MPI.COMM_SELF)
    real = mpi_api.turn_on

    @contextlib.contextmanager
    def freed_after(comm):
        with real(comm):
            yield
        monkeypatch.undo()
        last.Free()

    monkeypatch.setattr(mpi_api, "turn_on", freed_after)
    works_and_is_freed(pc.Allreduce_init(np.ones(1), np.zeros(1), comm=MPI.COMM_SELF))


def test_a_request_that_is_made_while_another_thread_closes_the_communicator(monkeypatch):
    last = pc.Allreduce_init(np.ones(1), np.zeros(1), comm=MPI.COMM_SELF)
    real = pc.Communicator.close
    made = []

    def close(comm, **options):
        monkeypatch.undo()
        made.append(pc.Allreduce_init(np.ones(1), np.zeros(1), comm=MPI.COMM_SELF))
        real(comm, **options)

    monkeypatch.setattr(pc.Communicator, "close", close)
    last.Free()
    works_and_is_freed(*made)


def works_and_is_freed(request):
    comm = request.collective.comm
    request.Start()
    assert request.Wait(timeout=LIMIT).round == 0
    request.Free()
    assert comm.closed


def test_threads_use_one_keyval(monkeypatch):
    """Each would find no communicator under its own."""
    begin = threading.Barrier(2)
    made, used = [], []

    def create():
        time.sleep(0.1)  # so that the other thread asks meanwhile
        made.append(len(made))
        return made[-1]

    def use():
        begin.wait(LIMIT)
        used.append(mpi_api._keyval())

    monkeypatch.setattr(mpi_api, "_keyvals", [])
    monkeypatch.setattr(native, "MPI", SimpleNamespace(Comm=SimpleNamespace(Create_keyval=create)))
    threads = [threading.Thread(target=use) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert (made, used) == ([0], [0, 0])
