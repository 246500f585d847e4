"""Communicators of other shapes than the world, several at once, and several threads."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from arrivals import one_late, play, rotating
from mpi4py import MPI
from oracle import LIMIT, Case, Recorder, check

import pycollectives as pc

WORLD = MPI.COMM_WORLD


def reversed_world():
    return WORLD.Split(0, -WORLD.rank)


def odd_and_even():
    return WORLD.Split(WORLD.rank % 2, WORLD.rank)


def first_apart():
    """One rank alone, the others together."""
    return WORLD.Split(int(WORLD.rank == 0), WORLD.rank)


def lower_half_reversed():
    """Only half of the ranks take part at all."""
    return WORLD.Split(0 if WORLD.rank <= WORLD.size // 2 else MPI.UNDEFINED, -WORLD.rank)


SHAPES = [reversed_world, odd_and_even, first_apart, lower_half_reversed]


def play_and_check(mpi_comm, script, **arguments):
    case = Case(size=mpi_comm.size, **{"calls": 6, **arguments})
    with pc.Communicator(mpi_comm) as comm:
        assert (comm.rank, comm.size) == (mpi_comm.rank, mpi_comm.size)
        recorder = Recorder(comm.rank, comm.partial_allreduce(**case.arguments), case)
        play(script, recorder, case)
        recorder.flush()
    check(case, mpi_comm.allgather(recorder.finished()))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("policy", [pc.Solo(), pc.Majority(1), pc.Full()], ids=repr)
@pytest.mark.parametrize("script", [one_late, rotating], ids=["one_late", "rotating"])
def test_shapes(shape, policy, script):
    mpi_comm = shape()
    if mpi_comm != MPI.COMM_NULL:
        play_and_check(mpi_comm, script, policy=policy, missed="sum")
        mpi_comm.Free()


def test_several_communicators_at_once():
    """Rounds of overlapping groups do not meet, though the collectives have the same place on each communicator."""
    mpi_comms = [WORLD, reversed_world(), odd_and_even(), first_apart()]
    comms = [pc.Communicator(c) for c in mpi_comms]
    cases = [Case(size=c.size, calls=8, missed="sum", policy=pc.Solo()) for c in comms]
    recorders = [
        Recorder(comm.rank, comm.partial_allreduce(**case.arguments), case)
        for comm, case in zip(comms, cases, strict=True)
    ]
    for step in range(8):
        turn = (step + WORLD.rank) % 4
        for recorder in recorders[turn:] + recorders[:turn]:  # each rank in another order
            recorder.call()
    for recorder, comm in zip(recorders, comms, strict=True):
        recorder.flush()
        comm.close()
    for recorder, case, mpi_comm in zip(recorders, cases, mpi_comms, strict=True):
        check(case, mpi_comm.allgather(recorder.finished()))
    for mpi_comm in mpi_comms[1:]:
        mpi_comm.Free()


@pytest.mark.parametrize("progress", ["thread", "caller"])
def test_several_threads_drive_different_collectives(progress):
    """Three threads per rank, one collective each, no order between them."""
    threads = 3
    case = Case(size=WORLD.size, calls=8, missed="sum", policy=pc.Solo())
    failures = []

    def drive(recorder):
        try:
            play(one_late, recorder, case)
            recorder.flush()
        except BaseException as error:
            failures.append(error)

    with pc.Communicator(WORLD, progress=progress) as comm:
        recorders = [Recorder(comm.rank, comm.partial_allreduce(**case.arguments), case) for _ in range(threads)]
        workers = [threading.Thread(target=drive, args=(recorder,)) for recorder in recorders]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert not failures, failures
    for recorder in recorders:
        check(case, WORLD.allgather(recorder.finished()))


def test_two_threads_on_one_collective_are_refused_and_nothing_is_sent():
    """Misuse is an error of the second thread; the first goes on."""
    with pc.Communicator(WORLD) as comm:
        ar = comm.partial_allreduce(count=1, dtype="int64", policy=pc.Full(), name="shared")
        if comm.size == 1:
            ar.allreduce(np.ones(1, np.int64))
            return
        if comm.rank == 0:  # waits for the others, who wait for its message
            waiting = threading.Thread(target=lambda: results.append(ar.allreduce(np.ones(1, np.int64), timeout=LIMIT)))
            results = []
            waiting.start()
            refused = 0
            while not refused:
                try:
                    ar.flush(timeout=0)
                except RuntimeError as error:
                    assert "shared" in str(error)
                    refused += 1
                except pc.StallError:  # the thread had not begun
                    pytest.fail("the first thread did not begin first")
            for rank in range(1, comm.size):
                WORLD.send(None, rank)
            waiting.join()
            assert results[0][0] == comm.size
        else:
            WORLD.recv(source=0)
            ar.allreduce(np.ones(1, np.int64), timeout=LIMIT)


def test_the_user_s_messages_and_ours_do_not_meet():
    """Same tags, any source, any tag, on the communicator that was given: all messages are the user's."""
    case = Case(size=WORLD.size, calls=10, missed="sum")
    with pc.Communicator(WORLD) as comm:
        recorder = Recorder(comm.rank, comm.partial_allreduce(**case.arguments), case)
        right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        for step in range(10):
            sent = [WORLD.isend((comm.rank, tag), dest=right, tag=tag) for tag in (0, 1, 2, 77)]
            recorder.contribute()
            came = sorted(WORLD.recv(source=MPI.ANY_SOURCE, tag=MPI.ANY_TAG) for _ in range(4))
            assert came == [(left, tag) for tag in (0, 1, 2, 77)], step
            recorder.wait()
            MPI.Request.waitall(sent)
        recorder.flush()
    check(case, WORLD.allgather(recorder.finished()))


def test_many_communicators_one_after_another():
    """Each is freed at its end: MPI's communicators do not run out."""
    for _ in range(60):
        with pc.Communicator(WORLD) as comm:
            assert comm.partial_allreduce(count=1, dtype="int64", policy="solo").allreduce(
                np.ones(1, np.int64), timeout=LIMIT
            )


def test_many_collectives_open_at_once():
    with pc.Communicator(WORLD) as comm:
        collectives = [comm.partial_allreduce(count=3, dtype="int64", missed="sum", policy="solo") for _ in range(50)]
        totals = [np.zeros(3, np.int64) for _ in collectives]
        for _ in range(2):
            for ar, total in zip(collectives, totals, strict=True):
                total += ar.allreduce(np.full(3, comm.rank + 1), timeout=LIMIT)[0]
        for ar, total in zip(collectives, totals, strict=True):
            ar.flush(timeout=LIMIT)
            total += ar.result
        everything = 2 * sum(range(1, comm.size + 1))
        assert all((total == everything).all() for total in totals)


@pytest.mark.parametrize(
    "wrong", [pytest.param("intercommunicator", marks=pytest.mark.mpi(min_size=2)), "null", "not a communicator"]
)
def test_communicators_that_are_refused(wrong):
    if wrong == "not a communicator":
        with pytest.raises(TypeError, match="comm: expected"):
            pc.Communicator(3)
        return
    if wrong == "null":
        with pytest.raises(ValueError, match="COMM_NULL"):
            pc.Communicator(MPI.COMM_NULL)
        return
    group = odd_and_even()
    inter = group.Create_intercomm(0, WORLD, 1 - WORLD.rank % 2)
    with pytest.raises(ValueError, match="intercommunicator"):
        pc.Communicator(inter)
    inter.Free()
    group.Free()


@pytest.mark.parametrize("shape", [lambda: WORLD, *SHAPES], ids=["world", *(shape.__name__ for shape in SHAPES)])
def test_replicas(shape):
    """One bit of one rank, the last, is found by all; a rank's mistake is told to all, and comparing goes on."""
    mpi_comm = shape()
    if mpi_comm == MPI.COMM_NULL:
        return
    with pc.Communicator(mpi_comm, timeout=LIMIT) as comm:
        last = comm.rank == comm.size - 1
        weights = np.arange(1000, dtype="f4")
        assert comm.is_same_on_all_ranks(weights)
        weights.view(np.uint32)[999] ^= int(last)
        assert comm.is_same_on_all_ranks(weights) == (comm.size == 1)
        with pytest.raises(BufferError if last else pc.MismatchError, match="C-contiguous"):
            comm.is_same_on_all_ranks(weights[::2] if last else weights)
        assert comm.is_same_on_all_ranks(weights[:999])


@pytest.mark.parametrize("check", [False, True])
def test_one_that_cannot_be_made_leaves_no_engine_that_serves(check, monkeypatch):
    """What fails after the engines were made, on all ranks alike."""
    from pycollectives.agreement import opening

    engines = []

    def recorded(make, *arguments, **options):
        def made():
            engines.append(make(*arguments, **options))
            return engines[-1]

        return made

    def fail(*_):
        raise RuntimeError("no costs")

    monkeypatch.setenv("PYC_CHECK", str(int(check)))
    monkeypatch.setattr(opening, "partial", recorded)
    monkeypatch.setattr(opening, "measured_costs", fail)
    with pytest.raises(RuntimeError, match="no costs"):
        pc.Communicator(WORLD)
    assert len(engines) == 1 + check
    for engine in engines:
        with pytest.raises(pc.ClosedError):
            engine.compare(b"", what="another call", timeout=LIMIT)
