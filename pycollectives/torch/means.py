"""Eager-SGD's mean of a flat tensor, wherever that is: one class for each way to the partial allreduce.

=========  ==========================================================================================================
memory     what the partial allreduce is given
=========  ==========================================================================================================
"host"     The tensor's own memory, which is the host's.
"device"   The tensor's own memory, which is a CUDA device's.
"staged"   A copy in pinned memory of the host: for tensors on a device that the partial allreduce does not take.
=========  ==========================================================================================================

Who uses a mean gives it tensors, and does not know which it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import torch

from ..partial_allreduce.eager_mean import EagerMean
from ..support.device_arrays import why_staged
from ..support.device_streams import handle_of_stream
from .host_copy import HostCopy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._core import Round
    from ..communicator import Communicator

__all__ = ["MEANS", "DeviceMean", "HostMean", "Memory", "StagedMean", "TensorMean", "memory_for"]

Memory: TypeAlias = Literal["host", "device", "staged"]


def memory_for(device: torch.device, staged: bool | None) -> tuple[Memory, str]:
    """Return how gradients on a device reach the partial allreduce, and why they are staged if nobody asked for that.

    Raises
    ------
    TypeError, ValueError
        `staged` is no flag, or False where they have to be staged.
    """
    if not (staged is None or isinstance(staged, bool)):
        raise TypeError(f"staged: expected True, False or None, got {staged!r}")
    if staged:
        return "staged", ""
    if device.type == "cpu":
        return "host", ""
    why = why_staged()
    if why and staged is False:
        raise ValueError(f"staged: expected True or None, got False: {why}")
    return ("staged", why) if why else ("device", "")


class TensorMean(EagerMean, ABC):
    """The mean over ranks of tensors of one dimension."""

    @abstractmethod
    def write_parts(self, outs: Sequence[tuple[int, torch.Tensor]]) -> None:
        """Write parts of the newest mean, from an element on, into tensors of any strides and floating-point type."""


class HostMean(TensorMean):
    """Of a tensor in memory of the host."""

    def __init__(self, comm: Communicator, like: torch.Tensor, **options: Any) -> None:
        super().__init__(comm, like.numpy(), **options)
        self._dtype = like.dtype

    def contribute(self, gradient: torch.Tensor) -> Round:
        """See `EagerMean`."""
        return super().contribute(gradient.numpy())

    def write_to(self, out: torch.Tensor) -> torch.Tensor:
        """See `EagerMean`."""
        super().write_to(out.numpy())
        return out

    def add_to(self, out: torch.Tensor) -> None:
        """See `EagerMean`."""
        super().add_to(out.numpy())

    def write_parts(self, outs: Sequence[tuple[int, torch.Tensor]]) -> None:
        """See `TensorMean`."""
        result = self._collective.result
        for start, out in outs:
            part = result[start : start + out.numel()].reshape(out.shape)
            if out.dtype is self._dtype:
                np.divide(part, self._divisor, out=out.detach().numpy())
            else:
                out.copy_(torch.from_numpy(np.asarray(np.divide(part, self._divisor))))  # a scalar, if 0-d


class StagedMean(TensorMean):
    """Of a tensor on a device, which is copied to the host, and from there."""

    def __init__(self, comm: Communicator, like: torch.Tensor, **options: Any) -> None:
        self._copy = HostCopy(like)
        super().__init__(comm, self._copy.array, **options)

    def contribute(self, gradient: torch.Tensor) -> Round:
        """See `EagerMean`."""
        return super().contribute(self._copy.fetch(gradient))

    def write_to(self, out: torch.Tensor) -> torch.Tensor:
        """See `EagerMean`."""
        super().write_to(self._copy.array)
        self._copy.put(out)
        return out

    def add_to(self, out: torch.Tensor) -> None:
        """See `EagerMean`."""
        super().add_to(self._copy.fetch(out))
        self._copy.put(out)

    def write_parts(self, outs: Sequence[tuple[int, torch.Tensor]]) -> None:
        """See `TensorMean`."""
        super().write_to(self._copy.array)
        self._copy.put_parts(outs)


class DeviceMean(TensorMean):
    """Of a tensor on a CUDA device, which the partial allreduce reads and writes there."""

    def write_to(self, out: torch.Tensor) -> torch.Tensor:
        """See `EagerMean`."""
        return torch.div(_tensor_on(self._collective.result, out.device), self._divisor, out=out)

    def add_to(self, out: torch.Tensor) -> None:
        """See `EagerMean`."""
        out += _tensor_on(self._collective.result, out.device) / self._divisor

    def write_parts(self, outs: Sequence[tuple[int, torch.Tensor]]) -> None:
        """See `TensorMean`."""
        if outs:
            result = _tensor_on(self._collective.result, outs[0][1].device)
            for start, out in outs:
                torch.div(result[start : start + out.numel()].view(out.shape), self._divisor, out=out)


def _tensor_on(result: Any, device: torch.device) -> torch.Tensor:
    """Return a tensor of the memory of a result; PyTorch's current stream waits for the values.

    PyTorch does not look at the stream that a CUDA array interface names, on which the result is written: that of the
    newest contribution, which a backward pass may have made on another one.
    """
    written_on, current = result.__cuda_array_interface__["stream"], torch.cuda.current_stream(device)
    if written_on != handle_of_stream(current):
        current.wait_stream(torch.cuda.ExternalStream(written_on, device=device))
    return torch.as_tensor(result, device=device)


MEANS: dict[Memory, type[TensorMean]] = {"host": HostMean, "device": DeviceMean, "staged": StagedMean}
"""By the ways to the partial allreduce."""
