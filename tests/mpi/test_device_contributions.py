"""Contributions on a device are handed over when their stream has made them: simulated driver, streams that are held.

Rank `SLOW` contributes what its stream does not make until it is let go.
"""

from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest
from device_programs import OnDevice, device_and_node, failing_device
from devices import HAS_CUDA
from mpi4py import MPI
from oracle import LIMIT

import pycollectives as pc

if TYPE_CHECKING:
    from collections.abc import Callable

WORLD = MPI.COMM_WORLD
SLOW = WORLD.size - 1
COUNT = 100

pytestmark = pytest.mark.skipif(not HAS_CUDA, reason="built with PYC_CUDA=OFF")


def play(program: Callable[..., None], seed: int, *, progress: str = "thread", **options) -> None:
    """Run `program(machine, x, ar)` with a device, an array on it, and a partial allreduce of such arrays."""
    with device_and_node(seed, progress=progress) as (machine, comm):
        x = OnDevice(machine, np.zeros(COUNT, "int64"))
        ar = comm.partial_allreduce(x, name="sum", **options)
        program(machine, x, ar)
        ar.leave()
        x.free()
        del ar


def contribute_held(machine, x: OnDevice, ar, value: int) -> pc.Request:
    """Contribute what is made when the stream is let go."""
    machine.driver.hold(x.handle)
    x.write(np.full(COUNT, value))
    return ar.contribute(x)


def contribute(machine, x: OnDevice, ar, value: int) -> pc.Request:
    x.write(np.full(COUNT, value))
    return ar.contribute(x)


def total(ar) -> int:
    values = set(ar.result.to_host().tolist())
    assert len(values) == 1
    return values.pop()


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("progress", ["thread", "caller"])
def test_nobody_waits_for_a_stream_that_is_held(progress):
    """Under Solo the others have their rounds; the rank itself is in the call, and out of it."""

    def program(machine, x, ar):
        if WORLD.rank == SLOW:
            handle = contribute_held(machine, x, ar, 1)
            assert not handle.test()
            WORLD.Barrier()
            assert not handle.test()
            machine.driver.let_go(x.handle)
            assert handle.late  # by then
        else:
            for _ in range(3):
                assert SLOW not in contribute(machine, x, ar, 100).wait().contributors
            WORLD.Barrier()
        assert SLOW in ar.flush().contributors

    play(program, 1, progress=progress, policy=pc.Solo())


@pytest.mark.mpi(min_size=2)
def test_the_engine_hands_over_while_the_application_does_something_else():
    def program(machine, x, ar):
        if WORLD.rank == SLOW:
            handle = contribute_held(machine, x, ar, 5)
            machine.driver.let_go(x.handle)
            WORLD.Barrier()  # the others have been given the round
            assert handle.test()
        else:
            handle = contribute(machine, x, ar, 1)
            handle.wait()
            WORLD.Barrier()
        assert total(ar) == 5 + WORLD.size - 1

    play(program, 2, policy=pc.Full())


def test_a_wait_has_a_limit_and_may_be_taken_up_again():
    def program(machine, x, ar):
        handle = contribute_held(machine, x, ar, 1)
        with pytest.raises(
            pc.StallError, match=r"^'sum': what this rank has contributed is not made after .* s: its str"
        ):
            handle.wait(timeout=0.1)
        with pytest.raises(pc.StallError, match="is not made after"):
            ar.flush(timeout=0.1)
        machine.driver.let_go(x.handle)
        assert handle.wait().contributors == tuple(range(WORLD.size))
        assert total(ar) == WORLD.size

    play(program, 3, policy=pc.Full())


def test_a_newer_contribution_does_not_hold_up_a_call():
    def program(machine, x, ar):
        first = contribute(machine, x, ar, 1)
        assert not first.late  # known when it is handed over
        second = contribute_held(machine, x, ar, 10)
        assert first.wait().contributors == tuple(range(WORLD.size))
        assert not second.test()
        machine.driver.let_go(x.handle)
        second.wait()
        assert total(ar) == 10 * WORLD.size

    play(program, 4, policy=pc.Full())


@pytest.mark.mpi(min_size=2)
def test_a_result_changes_by_calls_of_the_application_alone():
    """A late contribution that the engine hands over gives the application nothing yet."""

    def program(machine, x, ar):
        if WORLD.rank == SLOW:
            WORLD.Barrier()  # a round is over, which it has missed
            handle = contribute_held(machine, x, ar, 1000)
            machine.driver.let_go(x.handle)
            WORLD.Barrier()  # a round has what it contributed
            with pytest.raises(RuntimeError, match="sum: no result yet"):
                _ = ar.result
            assert handle.late
            handle.wait()
            assert total(ar) % 1000 == WORLD.size - 1
        else:
            contribute(machine, x, ar, 1).wait()
            WORLD.Barrier()
            while SLOW not in contribute(machine, x, ar, 1).wait().contributors:
                pass
            WORLD.Barrier()
        ar.flush()

    play(program, 5, policy=pc.Quorum(WORLD.size - 1), missed="latest")


def test_an_array_that_names_no_stream_is_worked_on_on_the_legacy_default():
    """As Numba's arrays are, whose kernels may still run."""

    def program(machine, x, ar):
        legacy = OnDevice(machine, np.zeros(COUNT, "int64"), stream=1)
        legacy.names_stream = False
        handle = contribute_held(machine, legacy, ar, 3)
        assert not handle.test()
        machine.driver.let_go(1)
        handle.wait()
        assert total(ar) == 3 * WORLD.size
        legacy.free()

    play(program, 10, policy=pc.Full())


@pytest.mark.parametrize(
    ("wrong", "text"), [("captured", "is being captured into a CUDA graph"), ("another device", "of another device")]
)
def test_a_stream_that_takes_no_work_is_refused(wrong, text):
    """By this call alone: the collective goes on, and so does the capture."""
    with device_and_node(11, devices=2) as (machine, comm):
        x = OnDevice(machine, np.zeros(COUNT, "int64"))
        y = OnDevice(machine, np.zeros(COUNT, "int64"), machine.stream_of_caller(wrong == "another device"))
        ar = comm.partial_allreduce(x, policy=pc.Full(), name="sum")
        if wrong == "captured":
            machine.driver.begin_capture(y.handle)
        with pytest.raises(ValueError, match=text):
            ar.contribute(y)
        with pytest.raises(ValueError, match=text):
            ar.contribute(x, stream=y.handle)
        with pytest.raises(ValueError, match=text):
            ar.allreduce(x, out=y)  # which has its round
        for value in range(20):
            contribute(machine, x, ar, value).wait()
            assert total(ar) == value * comm.size
        assert wrong != "captured" or machine.driver.end_capture(y.handle)
        ar.leave()
        for array in (x, y):
            array.free()
        del ar, array


def test_the_end_lets_python_run_for_which_a_stream_waits():
    def program(machine, x, ar):
        contribute(machine, x, ar, 1).wait()
        machine.driver.hold(x.handle)
        assert ar.result.shape == (COUNT,)  # it is copied when the stream is let go
        threading.Timer(0.2, machine.driver.let_go, [x.handle]).start()

    play(program, 12, policy=pc.Full())


def test_a_stream_that_hangs_does_not_hold_up_the_end():
    with failing_device(13) as machine:
        with pc.Communicator(WORLD, ranks_per_node="all", timeout=LIMIT) as comm:
            x = OnDevice(machine, np.zeros(COUNT, "int64"))
            ar = comm.partial_allreduce(x, policy=pc.Full(), name="sum")
            contribute(machine, x, ar, 1).wait()
            machine.driver.hold(x.handle)
            assert ar.result.shape == (COUNT,)
            ar.leave()
            del ar
        gc.collect()
        machine.driver.let_go(x.handle)
        machine.finish()  # what is copied, and to where, is still there
        assert machine.driver.problems(end=False) == []


@pytest.mark.parametrize("end", ["flush", "late", "contribute"])
def test_a_call_that_needs_what_was_contributed_waits_for_its_stream(end):
    def program(machine, x, ar):
        handle = contribute_held(machine, x, ar, 1)
        timer = threading.Timer(0.2, machine.driver.let_go, [x.handle])
        timer.start()
        if end == "flush":
            ar.flush()
            assert handle.test()
        elif end == "late":
            assert not handle.late
            handle.wait()
        else:
            ar.contribute(x)
            handle.wait()
            ar.flush()
        timer.join()

    play(program, 6, policy=pc.Full())


@pytest.mark.mpi(min_size=2)
def test_close_delivers_what_its_stream_has_not_made():
    def program(machine, x, ar):
        if WORLD.rank == SLOW:
            contribute_held(machine, x, ar, 1000)
            timer = threading.Timer(0.2, machine.driver.let_go, [x.handle])
            timer.start()
            ar.leave()
            timer.join()
            WORLD.Barrier()
        else:
            WORLD.Barrier()
            ar.flush()
            assert total(ar) == 1000

    play(program, 8, policy=pc.Solo())


def test_abort_counts_what_its_stream_has_not_made():
    with device_and_node(7) as (machine, comm):
        x = OnDevice(machine, np.zeros(COUNT, "int64"))
        ar = comm.partial_allreduce(x, policy=pc.Full(), name="sum")
        handle = contribute_held(machine, x, ar, 1)
        WORLD.Barrier()
        assert ar.abort() == 1
        with pytest.raises(pc.ClosedError, match=r"'sum': .*abort\(\) ended the call"):
            handle.wait()
        machine.driver.let_go(x.handle)
        machine.finish()
        x.free()
        del ar, handle


def test_a_fault_while_the_engine_hands_over_is_told_by_the_next_call():
    """... of this rank, and named by the others."""
    text = r"CUDA: \w+: CUDA_ERROR_ILLEGAL_ADDRESS \(simulated driver\)"
    with failing_device(9) as machine:
        with pc.Communicator(WORLD, ranks_per_node="all", timeout=LIMIT) as comm:
            x = OnDevice(machine, np.zeros(COUNT, "int64"))
            ar = comm.partial_allreduce(x, policy=pc.Full(), name="sum")
            if comm.rank == SLOW:
                handle = contribute_held(machine, x, ar, 1)
                machine.driver.fault(1)
                machine.driver.let_go(x.handle)
                WORLD.Barrier()  # the others have been told
                with pytest.raises(RuntimeError, match=f"^({text}|rank {SLOW}: {text})"):
                    handle.wait()
                del handle
            else:
                with pytest.raises(RuntimeError, match=f"^rank {SLOW}: {text}"):
                    contribute(machine, x, ar, 1).wait()
                WORLD.Barrier()
            with pytest.raises(RuntimeError, match=text):
                ar.contribute(x)
            ar.leave()
        WORLD.Barrier()  # nobody ends while another is being told
        del ar
