"""Communicators of NCCL, on a simulated NCCL, which is as unkind as the real one may be."""

from __future__ import annotations

import functools
import os
import subprocess
import sys

import numpy as np
import pytest
from devices import Simulated, bits, needs_cuda, wait

from pycollectives import _testing as testing

pytestmark = needs_cuda

SEEDS = range(8)
REMOTE_ERROR = 6
INTEGERS = ["int8", "int32", "int64", "uint8", "uint32", "uint64"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
OPS = {"SUM": np.add, "PROD": np.multiply, "MIN": np.minimum, "MAX": np.maximum, "AVG": np.add}
PAIRS = [(dtype, op) for dtype in INTEGERS + FLOATS for op in OPS]
PAIRS += [(dtype, op) for dtype in ("complex64", "complex128") for op in ("SUM", "AVG")]


class Members:
    """All members of a communicator, in one process, each on a device of its own."""

    def __init__(self, machine: Simulated, size: int, *, settled: bool = True):
        self.machine = machine
        self.executors = [machine.driver.executor(n) for n in range(size)]
        libraries = [executor.communicators() for executor in self.executors]
        name = libraries[0].new_id()
        self.communicators = [library.join(name, size, n) for n, library in enumerate(libraries)]
        self.streams = [executor.new_stream() for executor in self.executors]
        if settled:
            self.settle()

    def settle(self) -> None:
        for communicator in self.communicators:
            wait(communicator.is_settled)

    def begin(self, blocks, count: int, dtype: str, op: str) -> list:
        """Queue a reduction on all members; events after it."""
        events = []
        for n, block in enumerate(blocks):
            self.communicators[n].allreduce(self.streams[n], block.address, count, dtype, op)
            wait(self.communicators[n].is_settled)
            events.append(self.executors[n].new_event())
            self.streams[n].record(events[n])
        return events

    def allreduce(self, arrays, dtype: str, op: str) -> list[np.ndarray]:
        blocks = [self.machine.put(array) for array in arrays]
        for event in self.begin(blocks, len(arrays[0]), dtype, op):
            wait(event.reached)
        found = [block.get() for block in blocks]
        for block in blocks:
            block.free()
        return found

    def end(self) -> None:
        self.communicators.clear()
        self.machine.finish()
        self.streams.clear()
        self.executors.clear()


@pytest.fixture
def machine(request):
    """A simulated driver with eight devices and an NCCL."""
    device = Simulated(getattr(request, "param", 3), devices=8)
    device.driver.use_nccl()
    yield device
    device.end()


def draw(rng: np.random.Generator, dtype: str, count: int) -> np.ndarray:
    if dtype == "bfloat16":  # the upper half of a float32
        return (rng.standard_normal(count).astype("float32").view("uint32") >> 16).astype("uint16")
    if dtype.startswith("complex"):
        return (rng.standard_normal(count) + 1j * rng.standard_normal(count)).astype(dtype)
    if dtype.startswith("float"):
        return rng.standard_normal(count).astype(dtype)
    return rng.integers(0, 256, count * np.dtype(dtype).itemsize, dtype=np.uint8).view(dtype)


def reduced(arrays, dtype: str, op: str) -> np.ndarray:
    """In the order of members; 16-bit floats are rounded once."""
    if dtype == "bfloat16":
        wide = [(array.astype("uint32") << 16).view("float32") for array in arrays]
        total = functools.reduce(OPS[op], wide).view("uint32")
        return ((total + 0x7FFF + ((total >> 16) & 1)) >> 16).astype("uint16")
    kind = "float32" if dtype == "float16" else dtype
    return functools.reduce(OPS[op], [array.astype(kind) for array in arrays]).astype(dtype)


# --- what is reduced


@pytest.mark.parametrize(("dtype", "op"), PAIRS)
def test_every_type_and_operation(machine, dtype, op):
    rng = np.random.default_rng(5)
    members = Members(machine, 3)
    for count in (1, 7, 128, 1001):
        arrays = [draw(rng, dtype, count) for _ in range(3)]
        for found in members.allreduce(arrays, dtype, op):
            np.testing.assert_array_equal(bits(found), bits(reduced(arrays, dtype, op)))
    members.end()


@pytest.mark.parametrize("machine", SEEDS, indirect=True)
def test_several_reductions_on_several_communicators(machine):
    """Each waits for those before it on its own communicator, and for nothing else."""
    rng = np.random.default_rng(7)
    groups = [Members(machine, size) for size in (4, 2)]
    arrays = [[draw(rng, "float32", 65) for _ in group.executors] for group in groups]
    blocks = [[machine.put(array) for array in row] for row in arrays]
    events = []
    for _ in range(4):
        for group, row in zip(groups, blocks, strict=True):
            events += group.begin(row, 65, "float32", "SUM")
    for event in events:
        wait(event.reached)
    for row, given in zip(blocks, arrays, strict=True):
        expected = given
        for _ in range(4):
            expected = len(given) * [reduced(expected, "float32", "SUM")]
        for block, values in zip(row, expected, strict=True):
            np.testing.assert_array_equal(block.get(), values)
            block.free()
    del event
    events.clear()
    for group in groups:
        group.end()


def test_no_elements_need_no_work(machine):
    members = Members(machine, 2)
    block = machine.put(np.arange(2.0))
    before = machine.driver.steps
    members.communicators[0].allreduce(members.streams[0], block.address, 0, "float64", "SUM")
    assert members.communicators[0].is_settled()
    machine.finish()
    assert machine.driver.steps == before
    block.free()
    members.end()


def test_a_communicator_of_one(machine):
    members = Members(machine, 1)
    assert members.allreduce([np.arange(5.0)], "float64", "SUM")[0].tolist() == [0, 1, 2, 3, 4]
    members.end()


@pytest.mark.parametrize(
    ("dtype", "op"), [("int16", "SUM"), ("uint16", "MAX"), ("bool", "LOR"), ("int32", "BAND"), ("complex64", "PROD")]
)
def test_what_nccl_does_not_reduce(machine, dtype, op):
    members = Members(machine, 1)
    text = rf"^NCCL: expected SUM, PROD, MIN, MAX or AVG of .*, got {op} of {dtype}$"
    with pytest.raises(ValueError, match=text):
        members.communicators[0].allreduce(members.streams[0], 0, 1, dtype, op)
    assert members.communicators[0].is_settled()
    members.end()


# --- what takes time


def test_joining_and_reductions_are_in_progress_at_times():
    """What the tests of those who use it rely on."""
    joined, queued = set(), set()
    for seed in range(20):
        device = Simulated(seed, devices=2)
        device.driver.use_nccl()
        members = Members(device, 2, settled=False)
        joined.add(members.communicators[1].is_settled())
        members.settle()
        block = device.put(np.ones(4))
        members.communicators[0].allreduce(members.streams[0], block.address, 4, "float64", "SUM")
        queued.add(members.communicators[0].is_settled())
        wait(members.communicators[0].is_settled)
        members.communicators.clear()
        device.finish()
        block.free()
        members.end()
        device.end()
    assert joined == queued == {False, True}


def test_nobody_has_joined_before_all_have(machine):
    executors = [machine.driver.executor(n) for n in range(2)]
    library = executors[0].communicators()
    name = library.new_id()
    first = library.join(name, 2, 0)
    assert not any(first.is_settled() for _ in range(50))
    second = executors[1].communicators().join(name, 2, 1)
    wait(first.is_settled)
    wait(second.is_settled)
    assert machine.driver.communicators == 2
    del first
    assert machine.driver.communicators == 1
    del second, library, executors


@pytest.mark.parametrize("machine", SEEDS, indirect=True)
def test_members_wait_for_the_work_of_a_stream_that_is_behind(machine):
    members = Members(machine, 3)
    late = machine.stream_of_caller(2)
    members.streams[2] = members.executors[2].stream_of_caller(late)
    machine.driver.hold(late)
    blocks = [machine.put(np.full(3, float(n))) for n in range(3)]
    machine.write(late, blocks[2].address, np.full(3, 10.0))  # before the reduction
    events = members.begin(blocks, 3, "float64", "SUM")
    while machine.step():
        pass
    assert not any(event.reached() for event in events)
    machine.driver.let_go(late)
    for event in events:
        wait(event.reached)
    for block in blocks:
        assert block.get().tolist() == [11.0] * 3
        block.free()
    del event
    events.clear()
    members.end()


@pytest.mark.parametrize("machine", SEEDS, indirect=True)
def test_the_end_of_a_communicator_gives_up_what_waits(machine):
    members = Members(machine, 2)
    block = machine.put(np.ones(3))
    members.communicators[0].allreduce(members.streams[0], block.address, 3, "float64", "SUM")
    wait(members.communicators[0].is_settled)
    event = members.executors[0].new_event()
    members.streams[0].record(event)
    assert not any(event.reached() for _ in range(50))
    members.communicators.clear()
    assert machine.driver.communicators == 0
    wait(event.reached)
    assert block.get().tolist() == [1.0] * 3
    block.free()
    del event
    members.end()


# --- among processes

OTHER = """
import sys
import numpy as np
from devices import Simulated, wait
device = Simulated(9)
device.driver.use_nccl()
library = device.executor.communicators()
communicator = library.join(bytes.fromhex(sys.argv[1]), 2, 1)
wait(communicator.is_settled)
block, stream, event = device.put(np.arange(50.0)), device.executor.new_stream(), device.executor.new_event()
for _ in range(5):
    communicator.allreduce(stream, block.address, 50, "float64", "SUM")
    wait(communicator.is_settled)
stream.record(event)
wait(event.reached)
print(block.get().tolist())
block.free()
del communicator, library, stream, event
device.end()
"""


def run_other(*arguments: str) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def test_two_processes(machine):
    library = machine.executor.communicators()
    name = library.new_id()
    with run_other(OTHER, name.hex()) as other:
        communicator = library.join(name, 2, 0)
        wait(communicator.is_settled)
        stream, event, block = machine.executor.new_stream(), machine.executor.new_event(), machine.put(np.ones(50))
        for _ in range(5):
            communicator.allreduce(stream, block.address, 50, "float64", "SUM")
            wait(communicator.is_settled)
        stream.record(event)
        wait(event.reached)
        expected = (16 * (np.arange(50.0) + 1)).tolist()
        assert block.get().tolist() == expected
        assert str(expected) == other.communicate(timeout=100)[0].strip()
    assert other.returncode == 0
    block.free()
    del communicator, library, stream, event


# --- devices


def test_which_device_it_is(machine):
    ids = [machine.driver.executor(n).device_id() for n in (0, 1, 0)]
    assert ids[0] == ids[2] != ids[1]
    assert len(ids[0]) == 32
    assert set(ids[0]) <= set("0123456789abcdef")
    code = "from devices import Simulated; print(Simulated().executor.device_id())"
    with run_other(code) as other:
        elsewhere = other.communicate(timeout=100)[0].strip()
    assert len(elsewhere) == 32
    assert elsewhere not in ids
    machine.driver.set_device_id("A100")
    shared = machine.executor.device_id()
    assert shared not in (*ids, elsewhere)
    machine.driver.set_device_id("A100")
    assert machine.executor.device_id() == shared
    assert testing.host_executor().device_id() == "host"


@pytest.mark.parametrize(
    ("version", "enabled", "shares"),
    [(23203, "1", True), (23000, "1", True), (23203, None, False), (22907, "1", False)],
)
def test_two_members_on_one_device(machine, monkeypatch, version, enabled, shares):
    monkeypatch.delenv("NCCL_MULTI_RANK_GPU_ENABLE", raising=False)
    if enabled is not None:
        monkeypatch.setenv("NCCL_MULTI_RANK_GPU_ENABLE", enabled)
    machine.driver.use_nccl(version)
    library = machine.executor.communicators()
    assert library.version == f"2.{version // 100 % 100}.{version % 100}"
    assert library.why_not_shared == (
        ""
        if shares
        else "NCCL takes several ranks on a device from 2.30 on where NCCL_MULTI_RANK_GPU_ENABLE=1 is set; this is "
        + library.version
    )
    name = library.new_id()
    members = [library.join(name, 2, n) for n in range(2)]
    if shares:
        for member in members:
            wait(member.is_settled)
    else:
        text = r"^NCCL: ncclCommInitRankConfig: invalid usage: Duplicate GPU detected$"
        with pytest.raises(RuntimeError, match=text):
            wait(members[0].is_settled)
    members.clear()
    member = None
    del library


# --- errors


@pytest.mark.parametrize(
    ("call", "named"),
    [
        ("ncclGetUniqueId", "ncclGetUniqueId"),
        ("ncclCommInitRankConfig", "ncclCommInitRankConfig"),
        ("ncclCommGetAsyncError", "ncclCommGetAsyncError"),
        ("ncclCommGetAsyncError finds", "ncclCommInitRankConfig"),
    ],
)
def test_an_error_of_joining_names_the_call(call, named):
    device = Simulated(2, devices=2)
    device.driver.use_nccl()
    device.driver.fail(call, 1, REMOTE_ERROR)
    with pytest.raises(RuntimeError, match=f"^NCCL: {named}: remote process exited or there was a network error$"):
        Members(device, 2)
    assert device.driver.problems(end=False) == []


@pytest.mark.parametrize(
    ("call", "named"),
    [
        ("ncclAllReduce", "ncclAllReduce"),
        ("ncclCommGetAsyncError", "ncclCommGetAsyncError"),
        ("ncclCommGetAsyncError finds", "ncclAllReduce"),
    ],
)
def test_an_error_of_a_reduction_names_the_call(machine, call, named):
    members = Members(machine, 2)
    block = machine.put(np.ones(4))
    machine.driver.fail(call, 1, REMOTE_ERROR)
    with pytest.raises(RuntimeError, match=f"^NCCL: {named}: remote process exited"):
        members.begin([block], 4, "float64", "SUM")
    members.communicators.clear()
    machine.finish()
    block.free()
    members.end()


@pytest.mark.parametrize("machine", SEEDS, indirect=True)
def test_an_error_is_found_while_a_reduction_waits(machine):
    """Not before a poll has said that it is queued, and not when it is over."""
    members = Members(machine, 2)
    blocks = [machine.put(np.ones(4)) for _ in range(2)]
    machine.driver.fail("ncclCommGetAsyncError finds while it reduces", 2, REMOTE_ERROR)
    for event in members.begin(blocks, 4, "float64", "SUM"):
        wait(event.reached)
    assert all(communicator.is_settled() for communicator in 3 * members.communicators)
    machine.driver.hold_reductions(True)
    events = members.begin(blocks, 4, "float64", "SUM")
    assert members.communicators[0].is_settled()
    with pytest.raises(RuntimeError, match=r"^NCCL: ncclAllReduce: remote process exited"):
        members.communicators[1].is_settled()
    assert not any(event.reached() for event in events)
    members.communicators.clear()
    machine.driver.hold_reductions(False)
    machine.finish()
    del event, events
    for block in blocks:
        block.free()
    members.end()


def test_an_error_says_what_nccl_says_of_it(machine):
    members = Members(machine, 1)
    text = r"^NCCL: ncclAllReduce: invalid usage: simulated NCCL: expected at most 1 MiB$"
    with pytest.raises(RuntimeError, match=text):
        members.communicators[0].allreduce(members.streams[0], 0, (1 << 17) + 1, "float64", "SUM")
    members.end()


def test_an_id_whose_maker_has_ended(machine):
    code = "from devices import Simulated; d = Simulated(); d.driver.use_nccl(); "
    with run_other(code + "print(d.executor.communicators().new_id().hex())") as other:
        name = bytes.fromhex(other.communicate(timeout=100)[0])
    with pytest.raises(RuntimeError, match=r"^NCCL: ncclCommInitRankConfig: unhandled system error: simulated NCCL: "):
        machine.executor.communicators().join(name, 2, 1)


# --- misuse, which tests of those who use it rely on


def misused(device: Simulated) -> list[str]:
    return [problem.removeprefix("simulated driver: ") for problem in device.driver.problems(end=False)]


def test_a_call_before_it_is_settled_is_misuse():
    device = Simulated(1, devices=2)
    device.driver.use_nccl()
    members = Members(device, 2, settled=False)
    block = device.executor.allocate(8)
    members.communicators[0].allreduce(members.streams[0], block.address, 1, "float64", "SUM")
    assert misused(device) == ["ncclAllReduce of a communicator that is not settled"]


def test_different_reductions_are_misuse():
    device = Simulated(1, devices=2)
    device.driver.use_nccl()
    members = Members(device, 2)
    blocks = [device.executor.allocate(16) for _ in range(2)]
    for n, block in enumerate(blocks):
        members.communicators[n].allreduce(members.streams[n], block.address, n + 1, "float64", "SUM")
        wait(members.communicators[n].is_settled)
    device.finish()
    assert set(misused(device)) == {"members that call for different reductions"}


def test_joining_twice_is_misuse():
    device = Simulated(1)
    device.driver.use_nccl()
    library = device.executor.communicators()
    name = library.new_id()
    first = library.join(name, 2, 0)
    for size in (2, 3):
        with pytest.raises(RuntimeError, match=r"^NCCL: ncclCommInitRankConfig: invalid usage"):
            library.join(name, size, 0)
    assert misused(device) == 2 * ["a communicator joined twice, or with another size"]
    del first


def test_a_communicator_that_is_left_is_misuse():
    device = Simulated(1)
    device.driver.use_nccl()
    library = device.executor.communicators()
    member = library.join(library.new_id(), 1, 0)
    assert "simulated driver: 1 left: communicators" in device.driver.problems()
    del member
    assert "simulated driver: 1 left: communicators" not in device.driver.problems()
