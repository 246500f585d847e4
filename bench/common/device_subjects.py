"""The baselines for arrays on devices: MPI_Allreduce of copies on the host, and NCCL's allreduce."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from .device_arrays import DeviceArrays
from .mpi_subjects import MpiAllreduce
from .patterns import Model

if TYPE_CHECKING:
    from collections.abc import Callable

    from .averaging import Answer
    from .mpi_subjects import Operand


def _on_device(operand: Operand) -> DeviceArrays:
    assert isinstance(operand.arrays, DeviceArrays)
    return operand.arrays


class StagedAllreduce(MpiAllreduce):
    """A copy to pinned host memory, MPI_Allreduce, and a copy back, which works with every MPI."""

    name = "staged MPI_Allreduce"

    def __init__(self, comm: MPI.Comm, operand: Operand) -> None:
        super().__init__(comm, operand)
        self._arrays = _on_device(operand)
        self._given, self._got = (self._arrays.pinned(operand.count, operand.dtype) for _ in range(2))
        self._messages = self._message(self._given), self._message(self._got)

    def _timed(self) -> Callable[[], Any]:
        return self._allreduce

    def _allreduce(self) -> None:
        arrays = self._arrays
        arrays.copy_out(self._given, self._source.buffer)
        arrays.synchronize()
        self._comm.Allreduce(*self._messages)
        arrays.copy_in(self._out, self._got)
        arrays.synchronize()


class NcclAllreduce(MpiAllreduce):
    """NCCL's allreduce, timed until the result is complete."""

    name = "NCCL"

    def __init__(self, comm: MPI.Comm, operand: Operand) -> None:
        super().__init__(comm, operand)
        self._arrays = _on_device(operand)
        self._queue = self._arrays.nccl(comm)

    def _timed(self) -> Callable[[], Any]:
        return self._allreduce

    def _allreduce(self) -> None:
        self._queue(self._source.buffer, self._out)
        self._arrays.synchronize()


NCCL_TYPES = ("int8", "uint8", "int32", "int64", "float32", "float64")
SHARING = (2, 30)
"""The first NCCL version in which several ranks can share a device, if `TOLD` is set."""
TOLD = "NCCL_MULTI_RANK_GPU_ENABLE"


def why_no_nccl(comm: MPI.Comm, arrays: DeviceArrays, dtype: np.dtype[Any]) -> str:
    """Return why NCCL cannot be a baseline, the same text on all ranks, or "" if it can; collective.

    Call it before a communicator of NCCL is made, since a rank that fails there leaves the others waiting.
    """
    if dtype.name not in NCCL_TYPES:
        return f"it does not reduce {dtype.name}"
    reasons = comm.allgather(arrays.why_no_nccl() or _why_not_shared(arrays))
    return next((reason for reason in reasons if reason), "")


def _why_not_shared(arrays: DeviceArrays) -> str:
    if arrays.place.ranks_per_device == 1:
        return ""
    major, minor = arrays.nccl_version()
    if (major, minor) >= SHARING and os.environ.get(TOLD) == "1":
        return ""
    needed = ".".join(map(str, SHARING))
    return f"several ranks share a device, which needs NCCL {needed} and {TOLD}=1; this is NCCL {major}.{minor}"


# --- Workers that average their weights


class StagedAveraging:
    """`StagedAllreduce` and a division on the device. A number on the host counts workers whose time is over."""

    def __init__(self, comm: MPI.Comm, count: int, arrays: DeviceArrays) -> None:
        self._comm, self._arrays = comm, arrays
        self.model = Model(count, comm.rank, arrays=arrays)
        self._host = arrays.pinned(count + 1, np.float32)
        self._message = [self._host, count + 1, MPI.FLOAT]

    def open(self) -> None:
        self._ended = False

    def synchronise(self, step: int, over: bool) -> Answer | None:
        del step
        arrays, weights, host = self._arrays, self.model.weights, self._host
        arrays.copy_out(host[:-1], weights)
        arrays.synchronize()
        host[-1] = over
        self._comm.Allreduce(MPI.IN_PLACE, self._message)
        self._ended = bool(host[-1] > 0)
        arrays.copy_in(weights, host[:-1])
        arrays.scale(weights, 1 / self._comm.size)
        arrays.synchronize()
        return None

    def goes_on(self, over: bool) -> bool:
        del over
        return not self._ended

    def close(self) -> None:
        pass


class NcclAveraging:
    """NCCL's allreduce in place and a division. A number behind the weights counts workers whose time is over."""

    def __init__(self, comm: MPI.Comm, count: int, arrays: DeviceArrays) -> None:
        self._comm, self._arrays = comm, arrays
        self.model = Model(count, comm.rank, extra=1, arrays=arrays)
        self._over = arrays.pinned(1, np.float32)

    def open(self) -> None:
        self._ended = False
        self._queue = self._arrays.nccl(self._comm)

    def synchronise(self, step: int, over: bool) -> Answer | None:
        del step
        arrays, buffer = self._arrays, self.model.buffer
        self._over[0] = over
        arrays.copy_in(buffer[-1:], self._over)
        self._queue(buffer, buffer)
        arrays.scale(buffer, 1 / self._comm.size)
        arrays.copy_out(self._over, buffer[-1:])
        arrays.synchronize()
        self._ended = bool(self._over[0] > 0)
        return None

    def goes_on(self, over: bool) -> bool:
        del over
        return not self._ended

    def close(self) -> None:
        pass
