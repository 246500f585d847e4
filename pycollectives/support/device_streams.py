"""Streams of a CUDA device: the stream that writes an array's values, and the handles of libraries' streams.

Handles are numbered as in DLPack and the CUDA array interface: 1 is the legacy default stream, 2 the per-thread default
stream.
"""

from __future__ import annotations

import contextlib
import operator
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

LEGACY_STREAM = 1
"""The default stream that waits for all others."""
PER_THREAD_STREAM = 2
"""The default stream of a thread."""


def handle_of_stream(stream: Any) -> int:
    """Return the handle of a stream; raise TypeError if it is not a stream.

    A stream is a handle, an object with `__cuda_stream__` (cuda.core), or a PyTorch, CuPy or Numba stream.
    """
    handle = _handle_or_none(stream)
    if handle is None:
        raise TypeError(
            "stream: expected a PyTorch, CuPy or Numba stream, an object with __cuda_stream__, or a handle; "
            f"got {type(stream).__name__}"
        )
    if handle < 0:
        raise ValueError(f"stream: expected a handle of at least 0, got {handle}")
    return handle or LEGACY_STREAM  # the meaning of 0 in CUDA, unless a program is compiled otherwise


def refuse_stream(stream: object, name: str) -> None:
    """Raise `ValueError` if a call of the collective `name` in host memory was given a stream."""
    if stream is not None:
        raise ValueError(f"{name}: stream: expected None, as this collective is on the host, got {stream!r}")


def _handle_or_none(stream: Any) -> int | None:
    if isinstance(stream, bool):
        return None
    if hasattr(stream, "__cuda_stream__"):
        _, handle = stream.__cuda_stream__()
        return operator.index(handle)
    for attribute in ("cuda_stream", "ptr"):  # PyTorch, CuPy
        if hasattr(stream, attribute):
            return operator.index(getattr(stream, attribute))
    try:
        # Numba's streams are their handles: ctypes' pointers, which are None for 0.
        return operator.index(stream.handle.value or 0) if hasattr(stream, "handle") else operator.index(stream)
    except (AttributeError, TypeError):
        return None


def torch_stream(buffer: object) -> int | None:
    """Return PyTorch's current stream on the device of the tensor; None if the buffer is not a tensor."""
    cuda = _cuda_of_torch(buffer)
    return None if cuda is None else handle_of_stream(cuda.current_stream(buffer.device))  # type: ignore[attr-defined]


def on_its_device(buffer: object) -> AbstractContextManager[object]:
    """Return a context in which a tensor's device is PyTorch's current device, as its DLPack export requires."""
    cuda = _cuda_of_torch(buffer)
    return contextlib.nullcontext() if cuda is None else cuda.device(buffer.device)  # type: ignore[attr-defined]


def _cuda_of_torch(buffer: object) -> Any:
    """Return `torch.cuda` for a tensor on a device, otherwise None."""
    torch = sys.modules.get("torch")
    return torch.cuda if torch is not None and isinstance(buffer, torch.Tensor) and buffer.is_cuda else None
