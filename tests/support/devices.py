"""Executors for tests: the host's, and one of the simulated driver, whose work is done late and in any order."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from pycollectives.support.native import core

testing = core.testing
HAS_CUDA = hasattr(testing, "SimulatedDriver")
needs_cuda = pytest.mark.skipif(not HAS_CUDA, reason="built with PYC_CUDA=OFF")
STEPS = 100_000
"""Polls after which work is taken to hang."""


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
        """The caller's own work on its stream."""
        self.executor.new_stream().copy(address, array.ctypes.data, array.nbytes)

    def end(self) -> None:
        """Everything is freed."""


class Simulated(Host):
    """A simulated device."""

    def __init__(self, seed: int = 0, **options):
        try:
            self.driver = testing.SimulatedDriver(seed, **options)
        except RuntimeError:  # errors that a test has caught hold the driver that it had
            gc.collect()
            self.driver = testing.SimulatedDriver(seed, **options)
        self.executor = self.driver.executor()

    def stream_of_caller(self) -> int:
        return self.driver.stream_of_caller()

    def write(self, stream: int, address: int, array: np.ndarray) -> None:
        self.driver.produce(stream, address, array.tobytes())

    def end(self) -> None:
        """Everything is freed, and nothing was misused; nobody may hold what the executor gave."""
        driver, self.driver, self.executor = self.driver, None, None
        assert driver.problems() == []


class Block:
    """Memory of an executor with the values of an array."""

    def __init__(self, machine: Host, array: np.ndarray):
        self._machine = machine
        self._like = array.copy()
        self._block = machine.executor.allocate(array.nbytes)
        self.address = self._block.address
        self._run(self.address, self._like.ctypes.data)

    def get(self) -> np.ndarray:
        """The values as they are when all work on the executor's own stream is done."""
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
    """Poll until it is true; the device works meanwhile."""
    for _ in range(STEPS):
        if poll():
            return
    raise AssertionError("a hang: polled in vain")


def bits(array: np.ndarray) -> np.ndarray:
    return array.view(np.uint8)
