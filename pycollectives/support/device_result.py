"""A collective's result in its own memory on a device, from which other libraries make an array."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from .buffers import BufferDescription
    from .typing import Array


class _Collective(Protocol):
    buffer: BufferDescription

    @property
    def shown(self) -> int: ...
    def fetched(self) -> Array: ...


class DeviceResult:
    """A result in memory of a CUDA device, from which CuPy, PyTorch and Numba make an array without a copy.

    It has `__cuda_array_interface__`: use `cupy.asarray(result)` or `torch.as_tensor(result, device="cuda")`. Do not
    write to it. It does not change until this rank receives its next result.
    """

    def __init__(self, collective: _Collective, stream: int | None) -> None:
        self._collective = collective
        self._stream = stream
        self.shape = collective.buffer.shape
        self.dtype = collective.buffer.dtype

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The interface, version 3, with the stream that writes the result; `TypeError` for bfloat16."""
        if self.dtype.name == "bfloat16":
            raise TypeError("__cuda_array_interface__ does not support bfloat16: pass an array for the result as out=")
        # Not marked as read-only: PyTorch refuses to make a tensor of read-only memory.
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self._collective.shown, False),
            "strides": None,
            "version": 3,
            "stream": self._stream,
        }

    def to_host(self) -> Array:
        """Wait for the result and return a copy in host memory."""
        return self._collective.fetched()

    def __repr__(self) -> str:
        return f"DeviceResult(shape={self.shape}, dtype={self.dtype})"
