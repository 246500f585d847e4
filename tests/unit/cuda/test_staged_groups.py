"""The partial reduce of arrays on devices of several nodes. Ranks are threads; simulated driver, slow messages."""

import contextlib
import threading

import numpy as np
import pytest
from device_programs import OnDevice, cut_groups_short, simulated_device
from devices import needs_cuda
from oracle import LIMIT

import pycollectives as pc
from pycollectives.testing import run_ranks

pytestmark = needs_cuda

COUNT = 60
FAILED = 719


@pytest.fixture(autouse=True)
def short_pieces(monkeypatch):
    cut_groups_short(monkeypatch)


def plan_by(monkeypatch, schedule: str) -> None:
    """Let groups of any size go by this algorithm."""
    monkeypatch.setattr("pycollectives.partial_reduce.arguments.group_algorithm", lambda *_: schedule)


@pytest.mark.parametrize("schedule", ["recursive_doubling", "ring", "rabenseifner", "tree"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
def test_averages_are_right_however_the_data_is_cut(schedule, dtype, monkeypatch):
    """By the algorithm and by copies; some types are widened first."""
    plan_by(monkeypatch, schedule)

    def program(comm, machine):
        x = OnDevice(machine, np.zeros(COUNT, dtype))
        pr = comm.partial_reduce(x, groups=pc.groups.StaticGroups(3))
        for step in range(1, 20, 2):
            x.write(np.arange(COUNT) + step * comm.rank)
            assert pr.average(x, step).group == (0, 1, 2)
            np.testing.assert_array_equal(x.get(), (np.arange(COUNT) + step).astype(dtype))
        pr.leave()
        x.free()

    with simulated_device(1) as machine:
        run_ranks(3, lambda comm: program(comm, machine), ranks_per_node=1, delay=1e-4)


def test_a_member_without_weights_is_left_out(monkeypatch):
    """It takes part in the messages of all pieces."""
    plan_by(monkeypatch, "recursive_doubling")
    generated = threading.Event()

    def program(comm, machine):
        x = OnDevice(machine, np.full(COUNT, (1.0, 10.0, 5.0)[comm.rank]))
        with contextlib.suppress(KeyError), comm.partial_reduce(x, groups=pc.groups.RandomGroups(3)) as pr:
            if comm.rank == 1:
                generated.wait(LIMIT)
                raise KeyError
            if comm.rank == 2:
                threading.Timer(0.5, generated.set).start()  # a group of the three needs no request of rank 1
            assert pr.average(x).group == (0, 1, 2)
            np.testing.assert_array_equal(x.get(), np.full(COUNT, 3.0))
        x.free()

    with simulated_device(1) as machine:
        run_ranks(3, lambda comm: program(comm, machine), ranks_per_node=1, delay=1e-4)


@pytest.mark.parametrize(
    ("schedule", "nth"), [("tree", 1), ("tree", 2), *(("recursive_doubling", nth) for nth in range(1, 15))]
)
def test_nobody_is_given_what_another_rank_has_lost(schedule, nth, monkeypatch):
    """A copy of some piece fails; the message on that comes after the data."""
    plan_by(monkeypatch, schedule)

    def program(comm, machine):
        x = OnDevice(machine, np.zeros(COUNT))
        pr = comm.partial_reduce(x, groups=pc.groups.StaticGroups(2))
        if comm.rank == 0:
            machine.driver.fail("cuMemcpyAsync to the host", nth, FAILED)
        text = ""
        for step in range(1, 9, 2):
            x.write(np.full(COUNT, comm.rank + step))
            try:
                pr.average(x, step, timeout=LIMIT)
            except RuntimeError as error:
                text = str(error)
                break
            assert (x.get() == 0.5 + step).all(), "a wrong result"
        pr.leave()
        x.free()
        return "CUDA: cuMemcpyAsync: " in text

    with simulated_device(nth) as machine:
        assert all(run_ranks(2, lambda comm: program(comm, machine), ranks_per_node=1, delay=0.02, seed=nth))


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_nobody_is_given_what_a_member_of_a_named_group_has_lost(nth, seed, monkeypatch):
    """The member whose data it comes from says so after that."""
    monkeypatch.setattr("pycollectives.partial_reduce.explicit.group_algorithm", lambda *_: "tree")

    def program(comm, machine):
        x = OnDevice(machine, np.full(COUNT, comm.rank + 1.0))
        if comm.rank == 0:
            machine.driver.fail("cuMemcpyAsync to the host", nth, FAILED)
        with pytest.raises(RuntimeError, match=r"CUDA: cuMemcpyAsync: "):
            comm.preduce(x, [0, 1], timeout=LIMIT)
        x.free()

    with simulated_device(seed) as machine:
        run_ranks(2, lambda comm: program(comm, machine), ranks_per_node=1, delay=0.1, seed=seed)


@pytest.mark.parametrize("dtype", ["float16", "int32"])
@pytest.mark.parametrize("call", ["cuLaunchKernel", "cuEventRecord", "cuStreamWaitEvent"])
@pytest.mark.parametrize("nth", [1, 2])
def test_nobody_is_given_a_named_group_without_one_of_its_members(dtype, call, nth):
    """Whose values could not be widened; or, of the second member to come so far, could not be narrowed."""

    def program(comm, machine):
        x = OnDevice(machine, np.full(COUNT, 2 * comm.rank, dtype))
        comm.preduce(x, [0, 1], timeout=LIMIT)
        meeting.wait(LIMIT)
        if comm.rank == 0:
            machine.driver.fail(call, nth, FAILED)
        meeting.wait(LIMIT)
        try:
            comm.preduce(x, [0, 1], timeout=LIMIT)
        except RuntimeError as error:
            assert f"CUDA: {call}: " in str(error)
            failed.append(comm.rank)
        else:
            assert (x.get() == 1).all()
        x.free()

    meeting, failed = threading.Barrier(2), []
    with simulated_device(nth) as machine:
        run_ranks(2, lambda comm: program(comm, machine), ranks_per_node=1)
    assert failed


def test_a_named_group_keeps_what_it_has_allocated():
    """Long and short ones by turns, of types with and without accumulators of their own."""

    def program(comm, machine):
        arrays = [OnDevice(machine, np.zeros(*one)) for one in [(COUNT, "float64"), (7, "float16"), (3, "int32")]]
        for number in range(6):
            if number == 3 and comm.rank == 0:
                machine.driver.fail("cuMemHostAlloc", 1, FAILED)
                machine.driver.fail("cuMemAlloc_v2", 1, FAILED)
            meeting.wait(LIMIT)
            comm.preduce(arrays[number % 3], [0, 1], timeout=LIMIT)
        for x in arrays:
            x.free()

    meeting = threading.Barrier(2)
    with simulated_device(1) as machine:
        run_ranks(2, lambda comm: program(comm, machine), ranks_per_node=1)


def test_members_hear_of_a_member_without_memory_that_drives_nothing():
    """With progress="caller" it computes on, in no call of this package."""

    def program(comm, machine):
        x = OnDevice(machine, np.zeros(COUNT))
        if comm.rank == 0:
            machine.driver.fail("cuMemHostAlloc", 1, FAILED)
            with pytest.raises(RuntimeError, match=r"^CUDA: cuMemHostAlloc: "):
                comm.preduce(x, [0, 1])
            meeting.wait(LIMIT)
            assert told.wait(LIMIT)
        else:
            meeting.wait(LIMIT)
            with pytest.raises(RuntimeError, match=r"^rank 0: CUDA: cuMemHostAlloc: "):
                comm.preduce(x, [0, 1], timeout=LIMIT)
            told.set()
        x.free()

    meeting, told = threading.Barrier(2), threading.Event()
    with simulated_device(1) as machine:
        run_ranks(2, lambda comm: program(comm, machine), ranks_per_node=1, progress="caller")


def test_a_long_named_group_takes_no_memory_of_the_device_for_a_short_one():
    """Only short values have accumulators there."""

    def program(comm, machine):
        long, short = OnDevice(machine, np.zeros(750_000)), OnDevice(machine, np.ones(7, "float16"))  # 6 of 16 MB
        for x in (long, short, long):
            comm.preduce(x, [0, 1], timeout=LIMIT)
        long.free()
        short.free()

    with simulated_device(1, capacity=1 << 24) as machine:
        run_ranks(2, lambda comm: program(comm, machine), ranks_per_node=1)
