"""Memory of the host beside tensors on a device: pinned, so that the device itself copies there and back."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..support.typing import Array

__all__ = ["HostCopy", "host_memory", "wait_for"]


def host_memory(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return a tensor of zeros on the host, for copies from and to a device."""
    pinned = device.type == "cuda"
    with torch.cuda.device(device) if pinned else contextlib.nullcontext():  # or it would be that of the first device
        return torch.zeros(shape, dtype=dtype, pin_memory=pinned)


def wait_for(device: torch.device) -> None:
    """Wait until PyTorch's current stream of a device has done what it was given; the host is always done."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


class HostCopy:
    """Memory of the host, as much as a tensor has.

    Copies come after what PyTorch's current stream was given, and are done when the call returns.

    Attributes
    ----------
    array
        The memory, as an array of NumPy.
    """

    def __init__(self, like: torch.Tensor) -> None:
        """Allocate it; nothing is copied yet."""
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
        wait_for(tensor.device)  # else the host might change the array meanwhile

    def put_parts(self, outs: Sequence[tuple[int, torch.Tensor]]) -> None:
        """Copy parts of `array`, from an element on, to tensors of any strides on one device."""
        for start, out in outs:
            out.copy_(self._tensor[start : start + out.numel()].view(out.shape), non_blocking=True)
        for device in {out.device for _, out in outs}:
            wait_for(device)
