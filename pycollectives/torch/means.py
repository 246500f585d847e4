"""Eager-SGD's mean of a flat tensor: one class for each kind of memory, with the same interface.

=========  ==========================================================================================================
memory     memory that the partial allreduce uses
=========  ==========================================================================================================
"host"     The tensor's memory, on the host.
"device"   The tensor's memory, on a CUDA device.
"staged"   A copy in pinned host memory, for a tensor on a device that the partial allreduce cannot use.
=========  ==========================================================================================================
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

Memory: TypeAlias = Literal["host", "device", "staged"]


def memory_for(device: torch.device, staged: bool | None, *, continues: bool = False) -> tuple[Memory, str]:
    """Return the memory for gradients on a device, and the reason for staging if staging was not requested.

    `continues` is True if the communicator continues after deaths, which requires copies on the host.
    """
    if not (staged is None or isinstance(staged, bool)):
        raise TypeError(f"staged: expected True, False or None, got {staged!r}")
    if staged:
        return "staged", ""
    if device.type == "cpu":
        return "host", ""
    why = "contributions are kept on the host with on_failure='continue'" if continues else why_staged()
    if why and staged is False:
        raise ValueError(f"staged: expected True or None, got False: {why}")
    return ("staged", why) if why else ("device", "")


class TensorMean(EagerMean, ABC):
    """The mean over ranks of one-dimensional tensors."""

    @abstractmethod
    def write_parts(self, outs: Sequence[tuple[int, torch.Tensor]]) -> None:
        """Write parts of the newest mean to tensors of any strides and floating-point dtype.

        `outs` has pairs of a part's first index and the tensor.
        """


class HostMean(TensorMean):
    """The mean of a tensor in host memory."""

    def __init__(self, comm: Communicator, like: torch.Tensor, **options: Any) -> None:
        super().__init__(comm, like.numpy(), **options)
        self._dtype = like.dtype

    def contribute(self, gradient: torch.Tensor) -> Round:
        return super().contribute(gradient.numpy())

    def write_to(self, out: torch.Tensor) -> torch.Tensor:
        super().write_to(out.numpy())
        return out

    def add_to(self, out: torch.Tensor) -> None:
        super().add_to(out.numpy())

    def write_parts(self, outs: Sequence[tuple[int, torch.Tensor]]) -> None:
        result = self._collective.result
        for start, out in outs:
            part = result[start : start + out.numel()].reshape(out.shape)
            if out.dtype is self._dtype:
                np.divide(part, self._divisor, out=out.detach().numpy())
            else:
                out.copy_(torch.from_numpy(np.asarray(np.divide(part, self._divisor))))  # a scalar, if 0-d


class StagedMean(TensorMean):
    """The mean of a device tensor, which is copied to the host and back."""

    def __init__(self, comm: Communicator, like: torch.Tensor, **options: Any) -> None:
        self._copy = HostCopy(like)
        super().__init__(comm, self._copy.array, **options)

    def contribute(self, gradient: torch.Tensor) -> Round:
        return super().contribute(self._copy.fetch(gradient))

    def write_to(self, out: torch.Tensor) -> torch.Tensor:
        super().write_to(self._copy.array)
        self._copy.put(out)
        return out

    def add_to(self, out: torch.Tensor) -> None:
        super().add_to(self._copy.fetch(out))
        self._copy.put(out)

    def write_parts(self, outs: Sequence[tuple[int, torch.Tensor]]) -> None:
        super().write_to(self._copy.array)
        self._copy.put_parts(outs)


class DeviceMean(TensorMean):
    """The mean of a CUDA tensor whose memory the partial allreduce uses directly."""

    def write_to(self, out: torch.Tensor) -> torch.Tensor:
        return torch.div(_tensor_on(self._collective.result, out.device), self._divisor, out=out)

    def add_to(self, out: torch.Tensor) -> None:
        out += _tensor_on(self._collective.result, out.device) / self._divisor

    def write_parts(self, outs: Sequence[tuple[int, torch.Tensor]]) -> None:
        if outs:
            result = _tensor_on(self._collective.result, outs[0][1].device)
            for start, out in outs:
                torch.div(result[start : start + out.numel()].view(out.shape), self._divisor, out=out)


def _tensor_on(result: Any, device: torch.device) -> torch.Tensor:
    """Return a tensor on the memory of a result; PyTorch's current stream waits for the values.

    The result's CUDA array interface names the stream that writes the values, but PyTorch ignores this stream. It is
    the stream of the newest contribution, which a backward pass may have made on a stream other than the current one.
    """
    written_on, current = result.__cuda_array_interface__["stream"], torch.cuda.current_stream(device)
    if written_on != handle_of_stream(current):
        current.wait_stream(torch.cuda.ExternalStream(written_on, device=device))
    return torch.as_tensor(result, device=device)


MEANS: dict[Memory, type[TensorMean]] = {"host": HostMean, "device": DeviceMean, "staged": StagedMean}
"""Mean classes by kind of memory."""
