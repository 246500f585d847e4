"""Arrays of the benchmarks on a simulated device, in place of CuPy's and PyTorch's."""

from __future__ import annotations

import ctypes
import gc
import os
import time
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from common.device_arrays import DeviceArrays
from devices import SECONDS, Simulated

if TYPE_CHECKING:
    from mpi4py import MPI


class SimulatedArray:
    """One dimension of memory of a device, and slices of it."""

    def __init__(self, arrays: SimulatedArrays, block: Any, address: int, count: int, dtype: np.dtype):
        self._arrays, self._block = arrays, block
        self.address, self.size, self.dtype = address, count, dtype

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, part: slice) -> SimulatedArray:
        begin, end, _ = part.indices(self.size)
        address = self.address + begin * self.dtype.itemsize
        return SimulatedArray(self._arrays, self._block, address, end - begin, self.dtype)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": (self.size,),
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "version": 3,
            "stream": self._arrays.handle,
        }


class SimulatedArrays(DeviceArrays):
    """Arrays whose queued work is done late, in an order drawn by a seed."""

    name = "simulated driver"
    machine: ClassVar[Simulated]
    has_nccl: ClassVar[bool] = False

    def __init__(self, device: int):
        super().__init__(device)
        self._executor = self.machine.driver.executor(device)
        self.handle = self.machine.stream_of_caller(device)
        self._stream = self._executor.stream_of_caller(self.handle)
        self._done = self._executor.new_event()
        self._pinned: list[Any] = []

    @classmethod
    def use(cls, seed: int, *, devices: int, has_nccl: bool) -> None:
        """Make the benchmarks of this process run on it from now on."""
        cls.machine, cls.has_nccl = Simulated(seed, devices=devices), has_nccl
        cls.machine.driver.use()

    @classmethod
    def use_no_more(cls) -> None:
        cls.machine.driver.use_no_more()
        del cls.machine
        gc.collect()  # errors may hold references to the driver

    @classmethod
    def why_not(cls) -> str:
        return ""

    @classmethod
    def version(cls) -> str:
        return "simulated driver"

    def empty(self, count: int, dtype) -> SimulatedArray:
        kind = np.dtype(dtype)
        block = self._executor.allocate(count * kind.itemsize)
        return SimulatedArray(self, block, block.address, count, kind)

    def pinned(self, count: int, dtype) -> np.ndarray:
        nbytes = count * np.dtype(dtype).itemsize
        self._pinned.append(self._executor.allocate_staging(nbytes))
        return np.frombuffer((ctypes.c_char * nbytes).from_address(self._pinned[-1].address), dtype)

    def copy_in(self, array: SimulatedArray, host: np.ndarray) -> None:
        self._stream.copy(array.address, host.ctypes.data, host.nbytes)

    def copy_out(self, host: np.ndarray, array: SimulatedArray) -> None:
        self._stream.copy(host.ctypes.data, array.address, host.nbytes)

    def scale(self, array: SimulatedArray, factor: float) -> None:
        self._stream.weighted_sum(array.dtype.name, [array.address], [array.address], [factor], array.size)

    def synchronize(self) -> None:
        self._stream.record(self._done)
        until = time.monotonic() + SECONDS
        while not self._done.reached():
            assert time.monotonic() < until, "a hang"
            if not self.machine.step():
                os.sched_yield()

    def why_no_nccl(self) -> str:
        return "" if self.has_nccl else "the simulated driver has none"

    def nccl_version(self) -> tuple[int, int]:
        return (2, 29)

    def make_nccl(self, comm: MPI.Comm):
        """Return MPI in place of NCCL, to test the code around it."""

        def allreduce(x: SimulatedArray, out: SimulatedArray) -> None:
            mine, total = (np.empty(x.size, x.dtype) for _ in range(2))
            self.copy_out(mine, x)
            self.synchronize()
            comm.Allreduce(mine, total)
            self.upload(out, total)

        return allreduce
