"""The driver: how it is found, what its errors say, and that nothing is leaked when a call fails."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from device_programs import simulated_device
from devices import Simulated, needs_cuda, wait

from pycollectives import _testing as testing
from pycollectives.support.native import core

MODULES = sorted(Path(core.__file__).parent.glob("_*.so"))
OUT_OF_MEMORY, NOT_SUPPORTED = 2, 801
INTEGRATED, COMPUTE_MODE, UNIFIED_ADDRESSING, IPC_EVENTS = 18, 20, 41, 125
"""Attributes of devices."""


def test_no_module_is_linked_to_cuda():
    ldd = shutil.which("ldd")
    assert ldd is not None
    assert MODULES
    for module in MODULES:
        linked = subprocess.run([ldd, module], capture_output=True, text=True, check=True).stdout
        assert ("libmpi" in linked) == module.name.startswith(("_core", "_testing_mpi"))
        for library in ("libcuda", "libnvrtc", "libnvidia"):
            assert library not in linked


def test_without_a_device_there_is_a_reason():
    found = core.cuda_availability()
    assert set(found) == {"reason", "has_failed", "driver_version", "kernels", "devices"}
    assert bool(found["reason"]) or found["devices"]


def test_importing_does_not_load_the_driver():
    code = "import json, pycollectives; print(json.dumps('libcuda' in open('/proc/self/maps').read()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert json.loads(done.stdout) is False, done.stderr


@needs_cuda
def test_a_driver_that_is_not_there():
    assert testing.why_no_driver("libnone.so.7").startswith("no driver: libnone.so.7: cannot open shared object file")


@needs_cuda
def test_a_library_that_is_no_driver():
    assert testing.why_no_driver("libc.so.6") == "the driver libc.so.6 has no cuInit"


@needs_cuda
def test_availability():
    device = Simulated(devices=2)
    assert device.driver.availability() == ("", 2)
    device.end()


@needs_cuda
def test_what_a_driver_says_of_its_devices():
    with simulated_device(1, devices=4):
        found = core.cuda_availability()
    assert (found["reason"], found["driver_version"]) == ("", 13000)
    assert found["kernels"] == "of the host, by the simulated driver"
    buses = [device.pop("pci_bus_id") for device in found["devices"]]
    assert buses == [f"0000:{n:02x}:00.0" for n in range(1, 5)]
    accesses = [device.pop("reaches") for device in found["devices"]]
    assert accesses == 2 * [[True, True, False, False]] + 2 * [[False, False, True, True]]
    assert found["devices"] == 4 * [
        {
            "name": "simulated driver's device", "capability": "9.0", "bytes": 1 << 30, "why_not_shared": "",
            "one_process_at_a_time": False,
        }
    ]  # fmt: skip


@needs_cuda
def test_memory_is_of_the_device_that_allocated_it():
    with simulated_device(1, devices=3) as machine:
        executors = [machine.driver.executor(ordinal) for ordinal in (2, 1, 0)]
        blocks = [executor.allocate(8) for executor in executors]
        assert [core.device_of(block.address) for block in blocks] == [2, 1, 0]
        assert core.device_of(np.zeros(1).ctypes.data) is None
        for block in blocks:
            block.free()
        del executors, blocks, block


@needs_cuda
@pytest.mark.parametrize(
    ("attribute", "value", "why_not_shared"),
    [
        (UNIFIED_ADDRESSING, 0, "no unified addressing"), (INTEGRATED, 1, "integrated device"),
        (IPC_EVENTS, 0, "not supported by the device"), (IPC_EVENTS, None, ""),
    ],
)  # fmt: skip
def test_which_devices_can_be_shared(attribute, value, why_not_shared):
    with simulated_device(1) as machine:
        machine.driver.set_attribute(attribute, value)
        assert core.cuda_availability()["devices"][0]["why_not_shared"] == why_not_shared


@needs_cuda
def test_a_device_of_one_process():
    with simulated_device(1) as machine:
        machine.driver.set_attribute(COMPUTE_MODE, 3)
        assert core.cuda_availability()["devices"][0]["one_process_at_a_time"] is True


@needs_cuda
def test_where_kernels_come_from():
    """Said even if there is no driver."""
    assert (
        core.cuda_availability()["kernels"] == "as PTX, which the driver compiles: for compute capability 7.5 and later"
    )


@needs_cuda
def test_a_driver_that_takes_no_code_says_which_does():
    driver = testing.SimulatedDriver(1)
    text = r"^CUDA: cuModuleLoadData: .*; the driver is for CUDA 13\.0: expected a driver for CUDA 12\.4 or later, "
    with pytest.raises(RuntimeError, match=text + r"and a device of compute capability 7\.5 or later$"):
        driver.executor_with_code()
    assert driver.problems() == []


@needs_cuda
def test_a_driver_without_a_device():
    driver = testing.SimulatedDriver(1, devices=0)
    assert driver.availability() == ("the driver has no device", 0)


@needs_cuda
def test_out_of_memory():
    device = Simulated(capacity=1000)
    block = device.executor.allocate(600)
    with pytest.raises(RuntimeError, match=r"^CUDA: cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY \(simulated driver\)$"):
        device.executor.allocate(600)
    block.free()
    block = device.executor.allocate(600)
    block.free()
    del block
    device.end()


@needs_cuda
@pytest.mark.parametrize(
    ("call", "nth"),
    [
        ("cuDeviceGet", 1), ("cuDevicePrimaryCtxRetain", 1), ("cuModuleLoadData", 1), ("cuModuleGetFunction", 1),
        ("cuModuleGetFunction", 40),
    ],
)  # fmt: skip
def test_an_executor_that_cannot_be_made_leaves_nothing(call, nth):
    driver = testing.SimulatedDriver(1)
    driver.fail(call, nth, NOT_SUPPORTED)
    with pytest.raises(RuntimeError, match=f"^CUDA: {call}: "):
        driver.executor()
    assert driver.problems() == []


STEPS = ["cuMemAlloc_v2", "cuStreamCreateWithPriority", "cuEventCreate"]


@needs_cuda
@pytest.mark.parametrize("nth", range(1, 5))
@pytest.mark.parametrize("call", STEPS)
def test_boards_that_cannot_be_made_leave_nothing(call, nth):
    device = Simulated(seed=nth)
    device.driver.fail(call, nth, OUT_OF_MEMORY)
    with pytest.raises(RuntimeError, match=f"^CUDA: {call}: CUDA_ERROR_OUT_OF_MEMORY"):
        testing.GroupBoards(ranks=4, slot_bytes=64, executor=device.executor)
    device.end()


@needs_cuda
@pytest.mark.parametrize("call", ["cuMemcpyAsync", "cuLaunchKernel", "cuEventRecord", "cuStreamWaitEvent"])
def test_an_error_of_a_call_is_raised_there(call):
    device = Simulated()
    block = device.executor.allocate(64)
    stream, event = device.executor.new_stream(), device.executor.new_event()
    device.driver.fail(call, 1, NOT_SUPPORTED)
    with pytest.raises(RuntimeError, match=f"^CUDA: {call}: CUDA_ERROR_OF_SIMULATION"):
        stream.copy(block.address, block.address + 32, 32)
        stream.fold("float32", "SUM", [block.address], [block.address + 32], 8)
        stream.record(event)
        stream.wait(event)
    device.driver.finish()
    block.free()
    del block, stream, event
    device.end()


@needs_cuda
def test_a_poll_raises_what_went_wrong_on_the_device():
    device = Simulated()
    stream, event = device.executor.new_stream(), device.executor.new_event()
    block = device.executor.allocate(64)
    device.driver.fault(1)
    stream.copy(block.address, block.address + 32, 32)
    with pytest.raises(RuntimeError, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
        stream.record(event)
        wait(event.reached)


@needs_cuda
def test_a_capture_of_the_application_is_not_broken():
    """The driver forbids others to poll and to allocate meanwhile, unless they say that they know what they do."""
    device = Simulated()
    captured = device.stream_of_caller()
    device.driver.begin_capture(captured)
    block = device.put(np.ones(4))
    assert block.get().tolist() == [1.0] * 4
    staging = device.executor.allocate_staging(32)
    for memory in (block, staging):
        memory.free()
    del staging, memory
    assert device.driver.end_capture(captured)
    device.end()


@needs_cuda
@pytest.mark.parametrize(
    ("stream", "text"),
    [
        ("captured", "one that is being captured into a CUDA graph: a collective cannot be part of a graph"),
        ("of another device", "one of another device, or one that was destroyed"),
        ("destroyed", "one of another device, or one that was destroyed"),
    ],
)
def test_a_stream_of_the_caller_that_takes_no_work(stream, text):
    """It is what the caller got wrong, and not a failure of the device."""
    device = Simulated(devices=2)
    handle = 0x99 if stream == "destroyed" else device.stream_of_caller(stream == "of another device")
    if stream == "captured":
        device.driver.begin_capture(handle)
    event = device.executor.new_event()
    with pytest.raises(ValueError, match=rf"^stream: expected .*, got {text}"):
        device.executor.stream_of_caller(handle).record(event)
    assert event.reached()
    if stream == "captured":
        assert device.driver.end_capture(handle)
        device.executor.stream_of_caller(handle).record(event)
        wait(event.reached)
    del event
    device.end()


@needs_cuda
def test_a_function_that_the_driver_has_not_cannot_fail():
    with pytest.raises(ValueError, match=r"there is no function cuStreamCreate$"):
        Simulated().driver.fail("cuStreamCreate", 1, NOT_SUPPORTED)


@needs_cuda
def test_the_simulated_driver_sees_misuse():
    """What tests of leaks and early frees rely on."""
    device = Simulated()
    executor, driver = device.executor, device.driver
    stream, event, block = executor.new_stream(), executor.new_event(), executor.allocate(2 << 20)
    mapping = executor.map(executor.share(block.address))
    assert [p.removeprefix("simulated driver: ") for p in driver.problems()] == [
        "1 left: allocations", "1 left: mappings", "1 left: streams", "1 left: events", "1 left: modules",
        "1 left: contexts",
    ]  # fmt: skip
    driver.finish()
    block.free()
    assert driver.problems(end=False) == ["simulated driver: memory freed while another rank has it mapped"]
    mapping.free()
    never = device.stream_of_caller()
    driver.hold(never)
    executor.stream_of_caller(never).record(event)
    stream.wait(event)
    del stream
    assert driver.problems(end=False)[1:] == ["simulated driver: a stream destroyed with work"]


@needs_cuda
def test_memory_is_poisoned():
    device = Simulated()
    block = device.executor.allocate(4)
    address = block.address
    assert device.driver.read(address, 4) == b"\xfb" * 4
    block.free()
    with pytest.raises(ValueError, match="nothing is allocated there"):
        device.driver.read(address, 4)


@needs_cuda
@pytest.mark.parametrize("where", ["freed", "beyond the end", "pageable memory of the host"])
def test_kernels_on_other_memory_are_illegal(where):
    device = Simulated()
    block = device.executor.allocate(32)
    array = np.zeros(8, "f4")
    address = {"freed": block.address, "beyond the end": block.address + 16}.get(where, array.ctypes.data)
    if where == "freed":
        block.free()
    stream, event = device.executor.new_stream(), device.executor.new_event()
    with pytest.raises(RuntimeError, match="ILLEGAL_ADDRESS"):
        stream.fold("float32", "SUM", [address], [address], 8)
        stream.record(event)
        wait(event.reached)


@needs_cuda
def test_staging_memory_is_the_hosts():
    device = Simulated()
    staging, block = device.executor.allocate_staging(32), device.executor.allocate(32)
    stream, event = device.executor.new_stream(), device.executor.new_event()
    stream.copy(staging.address, block.address, 32)
    stream.fold("float32", "SUM", [staging.address], [staging.address], 8)
    stream.record(event)
    wait(event.reached)
    for memory in (staging, block):
        memory.free()
    del memory, staging, block, stream, event
    device.end()


@needs_cuda
def test_streams_are_done_in_many_orders():
    """Two streams that write to one place: each is last in some order."""
    last = set()
    for seed in range(40):
        device = Simulated(seed)
        block = device.put(np.zeros(4))
        streams = [device.executor.new_stream() for _ in range(2)]
        values = [np.full(4, float(i)) for i in range(2)]
        for stream, value in zip(streams, values, strict=True):
            stream.copy(block.address, value.ctypes.data, 32)
        device.driver.finish()
        last.add(block.get()[0])
        block.free()
        streams.clear()
        del stream
        device.end()
    assert last == {0.0, 1.0}
