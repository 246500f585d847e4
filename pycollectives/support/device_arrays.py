"""Arrays on a device, described by DLPack or the CUDA array interface, without access to their memory.

A collective made with such an array takes arrays on devices; other collectives refuse them (`support.buffers`). A
description has the address, the elements, and the stream after whose work the values are complete.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from .buffers import checked_dtype, device_type
from .device_streams import LEGACY_STREAM, PER_THREAD_STREAM, handle_of_stream, on_its_device, torch_stream
from .dlpack import dtype_name, tensor_of
from .validation import with_prefix

if TYPE_CHECKING:
    from collections.abc import Callable

    from .buffers import BufferDescription

_CUDA = (2, 13)
"""DLPack's device types with CUDA addresses: device memory and managed memory."""


@dataclass(frozen=True)
class DeviceArray:
    """A C-contiguous array in the memory of a CUDA device."""

    pointer: int
    """Address of the first element; may be 0 if there is none."""
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    stream: int
    """Work on this stream runs after the values are complete."""
    readonly: bool
    after: int | None = None
    """Another stream that writes the values and for which `stream` does not wait yet, or None."""
    device: int | None = None
    """Number of the device; None if the protocol does not give it."""
    owner: object = field(default=None, repr=False, compare=False)
    """An object that keeps the memory alive; hold it as long as the address is used."""

    @property
    def streams(self) -> list[int]:
        """The streams after whose work the values are complete."""
        return [self.stream] if self.after is None else [self.after, self.stream]

    @property
    def count(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


def describe_device(buffer: object, *, stream: Any = None) -> DeviceArray | None:
    """Describe an array on a CUDA device; return None for other objects.

    DLPack is preferred: its producer makes a stream wait, while PyTorch's CUDA array interface names no stream.
    `stream`: the stream on which the caller works with the array, as for `handle_of_stream`. If it is None:
    for tensors, PyTorch's current stream; otherwise the stream that the CUDA array interface names; otherwise the
    legacy default stream, on which Numba works without naming it.
    """
    found = _described(buffer, stream)
    # A kernel that reads misaligned elements fails, and the process loses all of its data on the device.
    if found is not None and found.count and found.pointer % found.dtype.alignment:
        raise BufferError(
            f"expected {found.dtype} at an address that {found.dtype.alignment} divides, got {found.pointer:#x}"
        )
    return found


def _described(buffer: object, stream: Any) -> DeviceArray | None:
    given = torch_stream(buffer) if stream is None else handle_of_stream(stream)
    if hasattr(buffer, "__dlpack__") and hasattr(buffer, "__dlpack_device__"):
        where = device_type(buffer)
        # CuPy's arrays have both protocols; with the CUDA array interface, no stream waits for the one that it names.
        return None if where is None else _of_dlpack(buffer, where, given or _named_stream(buffer) or LEGACY_STREAM)
    interface = getattr(buffer, "__cuda_array_interface__", None)
    return None if interface is None else _of_interface(buffer, interface, given)


def why_staged() -> str:
    """Return the reason why arrays on a CUDA device must be staged through the host; "" if they need not."""
    from .native import core

    reason = core.cuda_availability()["reason"]
    return f"CUDA is off in pycollectives: {reason}" if reason else ""


def device_number(array: DeviceArray) -> int:
    """Return the number of the device that an array is on; BufferError if there is none or CUDA is off."""
    from .native import core

    check_available()
    return _number_of(array, core.device_of)


def check_available() -> None:
    """Raise `BufferError` if arrays on devices cannot be used here because CUDA is off."""
    from .native import core

    found = core.cuda_availability()
    if found["reason"] and not found.get("has_failed"):  # a failed device raises its own error
        raise BufferError(
            f"expected host memory, got an array on a CUDA device, and CUDA is off: {found['reason']}; copy it to the "
            "host, or see `python -m pycollectives info`"
        )


def _number_of(array: DeviceArray, device_of: Callable[[int], int | None]) -> int:
    """Return the number of the array's device, from its protocol or the driver."""
    if array.device is not None:
        return array.device
    if array.count == 0:
        return 0
    number = device_of(array.pointer)
    if number is None:
        raise BufferError(f"__cuda_array_interface__: expected memory of a CUDA device, got address {array.pointer:#x}")
    return number


def fitting_array(
    x: object,
    like: BufferDescription,
    device: int,
    device_of: Callable[[int], int | None],
    *,
    name: str,
    stream: Any = None,
    writable: bool = False,
) -> DeviceArray:
    """Describe an array for the collective `name`; refuse it unless it is on `device` and matches `like`.

    `device_of` asks the driver for the device of an address. `stream`: as for `describe_device`.
    """
    try:
        return _fitting_array(x, like, device, device_of, stream, writable)
    except (ValueError, TypeError, BufferError) as error:
        raise with_prefix(error, name) from None


def _fitting_array(
    x: object,
    like: BufferDescription,
    device: int,
    device_of: Callable[[int], int | None],
    stream: Any,
    writable: bool,
) -> DeviceArray:
    array = describe_device(x, stream=stream)
    if array is None:
        raise BufferError(f"expected an array on CUDA device {device}, as at creation, got {type(x).__name__}")
    if (number := _number_of(array, device_of)) != device:
        raise BufferError(f"expected an array on CUDA device {device}, as at creation, got device {number}")
    if array.dtype != like.dtype:
        raise TypeError(f"dtype: expected {like.dtype}, got {array.dtype}")
    if array.count != like.count:
        raise ValueError(
            f"expected shape {like.shape} ({like.count} elements), got {array.shape} ({array.count} elements)"
        )
    if writable and array.readonly:
        raise BufferError("expected a writable array, got one that is read-only")
    return array


# --- CUDA array interface, version 3: https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html


def _named_stream(buffer: object) -> int | None:
    """Return the stream that the CUDA array interface of an array names, if any."""
    interface = getattr(buffer, "__cuda_array_interface__", None)
    return None if interface is None else _stream_of(interface)


def _stream_of(interface: dict[str, Any]) -> int | None:
    stream = interface.get("stream")
    if stream is not None and (isinstance(stream, bool) or not isinstance(stream, int) or stream < 1):
        raise BufferError(
            f"__cuda_array_interface__: expected stream None, {LEGACY_STREAM} (legacy default), {PER_THREAD_STREAM} "
            f"(default of the thread) or a handle, got {stream!r}"
        )
    return stream


def _of_interface(buffer: object, interface: dict[str, Any], given: int | None) -> DeviceArray:
    try:
        shape = tuple(int(extent) for extent in interface["shape"])
        pointer, readonly = interface["data"]
        dtype = checked_dtype(np.dtype(interface["typestr"]))
    except (KeyError, ValueError) as error:
        raise BufferError(f"__cuda_array_interface__: expected shape, typestr and data, got {interface}") from error
    if interface.get("mask") is not None:
        raise BufferError("__cuda_array_interface__: expected no mask, got one; fill in the masked values first")
    _check_contiguous(shape, interface.get("strides"), dtype.itemsize)
    named = _stream_of(interface)
    after = named if given not in (None, named) else None
    works_on = given or named or LEGACY_STREAM
    return DeviceArray(int(pointer or 0), shape, dtype, works_on, bool(readonly), after, owner=buffer)


def _check_contiguous(shape: tuple[int, ...], strides: Any, width: int) -> None:
    """Check that strides are C-contiguous, with `width` in the last dimension; ignore dimensions of extent 1."""
    if strides is None or 0 in shape:
        return
    expected = width
    for extent, stride in zip(reversed(shape), reversed(tuple(strides)), strict=True):
        if extent != 1 and stride != expected:
            raise BufferError(f"expected a C-contiguous array on the device, got shape {shape} with strides {strides}")
        expected *= extent


# --- DLPack


def _of_dlpack(buffer: Any, where: tuple[str, int, int], stream: int) -> DeviceArray:
    kind, kind_number, _ = where
    if kind_number not in _CUDA:
        raise BufferError(f"expected memory of the host or of a CUDA device, got {type(buffer).__name__} on {kind}")
    with on_its_device(buffer):
        capsule = buffer.__dlpack__(stream=stream)
    tensor = tensor_of(capsule)
    dtype = checked_dtype(dtype_name(tensor))
    shape = tuple(tensor.shape[: tensor.dimensions])
    _check_contiguous(shape, tuple(tensor.strides[: tensor.dimensions]) if tensor.strides else None, 1)
    pointer = (tensor.data or 0) + tensor.byte_offset
    return DeviceArray(pointer, shape, dtype, stream, False, device=tensor.device, owner=capsule)
