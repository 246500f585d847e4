"""Pinned host memory, to and from which a device copies its tensors."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..support.typing import Array


def host_memory(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return a tensor of zeros on the host, for copies from and to a device."""
    pinned = device.type == "cuda"
    with torch.cuda.device(device) if pinned else contextlib.nullcontext():  # otherwise it belongs to device 0
        return torch.zeros(shape, dtype=dtype, pin_memory=pinned)


def wait_for(device: torch.device) -> None:
    """Wait until PyTorch's current stream of a device has completed its work; on the host, return at once."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


class HostCopy:
    """Host memory of the size of a tensor, with a NumPy array on it.

    Copies run after earlier work on PyTorch's current stream, and are complete when the call returns.
    """

    def __init__(self, like: torch.Tensor) -> None:
        """Allocate the memory without copying the tensor."""
        self._tensor = host_memory(like.shape, like.dtype, like.device)
        self.array: Array = self._tensor.numpy()

    def fetch(self, tensor: torch.Tensor) -> Array:
        """Copy a tensor to the host, and return `array`."""
        self._tensor.copy_(tensor, non_blocking=True)
        wait_for(tensor.device)
        return self.array

    def put(self, tensor: torch.Tensor) -> None:
        """Copy `array` to a tensor."""
        tensor.copy_(self._tensor, non_blocking=True)
        wait_for(tensor.device)  # the host may change the array after the call

    def put_parts(self, outs: Sequence[tuple[int, torch.Tensor]]) -> None:
        """Copy parts of `array` to tensors of any strides; `outs` has pairs of a part's first index and the tensor."""
        for start, out in outs:
            out.copy_(self._tensor[start : start + out.numel()].view(out.shape), non_blocking=True)
        for device in {out.device for _, out in outs}:
            wait_for(device)
