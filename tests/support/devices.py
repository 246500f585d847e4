"""Executors for tests: of the host, of a GPU, and of the simulated driver, whose work is done late and in any order."""

from __future__ import annotations

import functools
import gc
import time

import numpy as np
import pytest

from pycollectives import _testing as testing
from pycollectives.support.native import core

HAS_CUDA = hasattr(testing, "SimulatedDriver")
needs_cuda = pytest.mark.skipif(not HAS_CUDA, reason="built with PYC_CUDA=OFF")
SECONDS = 30
"""Seconds after which work counts as hung."""
PER_THREAD_STREAM = 2


@functools.lru_cache(maxsize=1)
def why_no_gpu() -> str:
    """Return why there is no GPU; empty if there is one."""
    return str(core.cuda_availability()["reason"])


class Host:
    """The host, whose calls are done when they return."""

    def __init__(self, seed: int = 0):
        del seed
        self.executor = testing.host_executor()

    def stream_of_caller(self) -> int:
        return 0

    def put(self, array: np.ndarray) -> Block:
        return Block(self, array)

    def write(self, stream: int, address: int, array: np.ndarray) -> None:
        """Write an array: the caller's own work on its stream."""
        self.executor.new_stream().copy(address, array.ctypes.data, array.nbytes)

    def step(self) -> bool:
        """Let the device do some work; return whether there was any, as far as is known."""
        return False

    def finish(self) -> None:
        """Complete all queued work."""

    def end(self) -> None:
        """Check that everything is freed."""


class Simulated(Host):
    """A simulated device."""

    def __init__(self, seed: int = 0, **options):
        try:
            self.driver = testing.SimulatedDriver(seed, **options)
        except RuntimeError:  # errors that a test has caught keep its driver alive
            gc.collect()
            self.driver = testing.SimulatedDriver(seed, **options)
        self.executor = self.driver.executor()

    def stream_of_caller(self, device: int = 0) -> int:
        return self.driver.stream_of_caller(device)

    def write(self, stream: int, address: int, array: np.ndarray) -> None:
        self.driver.produce(stream, address, array.tobytes())

    def step(self) -> bool:
        return self.driver.step()

    def finish(self) -> None:
        self.driver.finish()

    def end(self) -> None:
        """Check that everything is freed without misuse; no references to the executor's memory may remain."""
        driver, self.driver, self.executor = self.driver, None, None
        problems = driver.problems()
        assert problems == [], problems


class Gpu(Host):
    """A device of this machine; for tests that are marked `gpu`."""

    def __init__(self, seed: int = 0, *, ordinal: int = 0):
        del seed
        self.executor = testing.device_executor(ordinal)
        self._sources = []

    def stream_of_caller(self) -> int:
        return PER_THREAD_STREAM

    def write(self, stream: int, address: int, array: np.ndarray) -> None:
        self._sources.append(array.copy())  # read later
        self.executor.stream_of_caller(stream).copy(address, self._sources[-1].ctypes.data, array.nbytes)

    def finish(self) -> None:
        event = self.executor.new_event()
        self.executor.stream_of_caller(PER_THREAD_STREAM).record(event)
        wait(event.reached)
        self._sources.clear()


class Block:
    """Memory of an executor with the values of an array."""

    def __init__(self, machine: Host, array: np.ndarray):
        self._machine = machine
        self._like = array.copy()
        self._block = machine.executor.allocate(array.nbytes)
        self.address = self._block.address
        self._run(self.address, self._like.ctypes.data)

    def get(self) -> np.ndarray:
        """Return the values when all work on the executor's own stream is done."""
        found = np.empty_like(self._like)
        self._run(found.ctypes.data, self.address)
        return found

    def free(self) -> None:
        self._block.free()
        self._block = None  # which keeps the executor alive

    def _run(self, to: int, source: int) -> None:
        executor = self._machine.executor
        stream, event = executor.new_stream(), executor.new_event()
        stream.copy(to, source, self._like.nbytes)
        stream.record(event)
        wait(event.reached)


def wait(poll) -> None:
    """Poll until the result is true, while the device works."""
    until = time.monotonic() + SECONDS
    while not poll():
        assert time.monotonic() < until, "a hang: polled in vain"


def bits(array: np.ndarray) -> np.ndarray:
    return array.view(np.uint8)
