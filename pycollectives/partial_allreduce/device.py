"""The partial allreduce of arrays on a CUDA device: the engine's collective, as the public class expects it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..support.device_arrays import fitting_array
from ..support.operations import check_op_on_device
from ..support.validation import checked_timeout

if TYPE_CHECKING:
    from .. import _core
    from .._core import Round, RoundInfo
    from ..support.buffers import BufferDescription
    from ..support.device_arrays import DeviceArray
    from ..support.typing import Array

__all__ = ["DeviceCollective", "DeviceResult", "check_on_device"]


def check_on_device(buffer: BufferDescription, op: str, algorithm: str, nodes: int) -> None:
    """Raise `ValueError` if ranks on `nodes` nodes cannot reduce such arrays on devices."""
    check_op_on_device(op, buffer.dtype)
    if nodes > 1:
        raise ValueError(
            f"like: on a CUDA device all ranks must share one node, got {nodes} nodes; copy the array to the host first"
        )
    if algorithm not in ("auto", "board"):
        raise ValueError(f"algorithm: on a CUDA device expected 'auto' or 'board', got {algorithm!r}")


class DeviceResult:
    """A result in memory of a CUDA device: what CuPy, PyTorch and Numba make an array of without copying.

    It has `__cuda_array_interface__`: `cupy.asarray(result)`, `torch.as_tensor(result, device="cuda")`. Do not write to
    it. It stays as it is until this rank contributes, waits or flushes again.
    """

    def __init__(self, collective: DeviceCollective, stream: int | None) -> None:
        """Made by the collective, which it keeps alive."""
        self._collective = collective
        self._stream = stream
        self.shape = collective.buffer.shape
        self.dtype = collective.buffer.dtype

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3, with the stream that the result is written on; `TypeError` of bfloat16."""
        if self.dtype.name == "bfloat16":
            raise TypeError("__cuda_array_interface__ has no bfloat16: use allreduce(x, out=array) instead of result")
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self._collective.shown, False),
            "strides": None,
            "version": 3,
            "stream": self._stream,
        }

    def to_host(self) -> Array:
        """Return a copy in memory of the host, when the result is there."""
        return self._collective.fetched()

    def __repr__(self) -> str:
        """Say what it is; its values stay on the device."""
        return f"DeviceResult(shape={self.shape}, dtype={self.dtype})"


class DeviceCollective:
    """The engine's collective on a device. Calls take arrays on it, and the stream on which the caller works."""

    def __init__(
        self,
        collective: _core.DevicePartialAllreduce,
        buffer: BufferDescription,
        device: int,
        stream: int | None,
    ) -> None:
        """`device`: its number. `stream`: of the caller, before it contributes."""
        self._collective = collective
        self._device = device
        self._stream = stream  # ... of the newest contribution
        self._contributed: object = None  # ... which a stream may still read
        self.buffer = buffer

    def __getattr__(self, name: str) -> Any:
        """What needs no array is the engine's."""
        return getattr(self._collective, name)

    def contribute(self, x: object, *, stream: Any = None) -> Round:
        """As `PartialAllreduce.contribute`."""
        array = self._described(x, stream)
        streams = [handle for handle in (array.after, array.stream) if handle is not None]
        handle = self._collective.contribute(array.pointer, streams)
        self._stream = array.stream
        self._contributed = array.owner
        return handle

    def contribute_and_wait(self, x: object, timeout: float | None = None, *, stream: Any = None) -> RoundInfo:
        """Return `contribute(x).wait(timeout)`; a wrong timeout is refused before anything is handed over."""
        limit = checked_timeout(timeout)
        return self.contribute(x, stream=stream).wait(limit)

    def allreduce(
        self, x: object, out: object = None, timeout: float | None = None, *, stream: Any = None
    ) -> tuple[Any, RoundInfo]:
        """As `PartialAllreduce.allreduce`."""
        receiver = None if out is None else self.receiver(out, stream)
        info = self.contribute_and_wait(x, timeout, stream=stream)
        return self.given(out, receiver), info

    def receiver(self, out: object, stream: Any = None) -> DeviceArray:
        """Return where a result is to be written to; raise if it cannot be."""
        array = self._described(out, stream)
        if array.readonly:
            raise BufferError(f"{self.name}: out: expected a writable array, got one that is read-only")
        return array

    def given(self, out: object, receiver: DeviceArray | None) -> Any:
        """Return the newest result, in `out` if there is one."""
        if receiver is None:
            return self.result
        self._collective.give(receiver.pointer, receiver.stream)
        return out

    @property
    def result(self) -> DeviceResult:
        """The newest result, in order with the stream of the newest contribution."""
        self._collective.give(self._collective.shown, self._stream)
        return DeviceResult(self, self._stream)

    @property
    def shown(self) -> int:
        """The address of the memory that `result` is in."""
        return self._collective.shown

    def fetched(self) -> Array:
        """Return the newest result, on the host."""
        values = np.empty(self.buffer.shape, self.buffer.dtype)
        self._collective.fetch(values)
        return values

    def _described(self, x: object, stream: Any) -> DeviceArray:
        try:
            return fitting_array(x, self.buffer, self._device, self._collective.device_of, stream=stream)
        except (ValueError, TypeError, BufferError) as error:
            raise type(error)(f"{self.name}: {error}") from None
