"""The caller's memory: found through PEP 3118, DLPack or the CUDA array interface, checked, and never copied.

Every buffer becomes a NumPy array that shares its memory. The element types are those that the engine reduces. A buffer
that would need a copy (not C-contiguous, in foreign byte order, on a device) is refused with advice.
"""

from __future__ import annotations

import functools
import math
import operator
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from .dlpack import words_of_host
from .validation import with_prefix

if TYPE_CHECKING:
    from mpi4py import MPI

    from .typing import Array

DTYPE_NAMES = (
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128", "bool"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
)
"""Element types that the engine reduces, by NumPy's name."""

_ON_HOST = (1, 3, 11)
"""DLPack's device types with host memory: plain, or pinned by CUDA or ROCm."""
_DEVICES = {2: "CUDA device", 4: "OpenCL device", 7: "Vulkan device", 8: "Metal device", 10: "ROCm device"}
_DEVICES |= {13: "CUDA managed memory of device", 14: "oneAPI device"}
"""Names of DLPack's other device types."""


@dataclass(frozen=True)
class BufferDescription:
    """Describes a buffer: its `shape` in elements, and `dtype`, the element type."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def count(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


def _is_mpi_datatype(candidate: object) -> TypeGuard[MPI.Datatype]:
    module = sys.modules.get("mpi4py.MPI")
    return module is not None and isinstance(candidate, module.Datatype)


def checked_dtype(candidate: Any) -> np.dtype[Any]:
    """Return an element type as a NumPy dtype, in native byte order; TypeError if its name is not in `DTYPE_NAMES`.

    `candidate`: a NumPy dtype or an argument of `numpy.dtype`, "bfloat16" (needs ml_dtypes), or an MPI datatype.
    """
    if candidate is None:
        raise TypeError(f"dtype: expected one of {', '.join(DTYPE_NAMES)}; got None")
    if _is_mpi_datatype(candidate):
        try:
            dtype = np.dtype(candidate.tocode())
        except (TypeError, ValueError) as error:
            raise TypeError(f"dtype: {candidate.Get_name() or 'a derived MPI datatype'}: {error}") from None
    elif isinstance(candidate, str) and candidate == "bfloat16":
        dtype = _bfloat16()
    else:
        try:
            dtype = np.dtype(candidate)
        except TypeError as error:
            raise TypeError(f"dtype: expected one of {', '.join(DTYPE_NAMES)}; got {candidate!r}: {error}") from None
    return _supported(dtype)


@functools.lru_cache(maxsize=64)  # NumPy computes a dtype's name at every access
def _supported(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if not dtype.isnative:
        raise TypeError(
            f"dtype: expected native byte order, got {dtype.str!r}; "
            f"convert with x.astype({dtype.newbyteorder('=').name!r})"
        )
    if dtype.name not in DTYPE_NAMES or dtype.fields is not None:
        raise TypeError(f"dtype: expected one of {', '.join(DTYPE_NAMES)}; got {dtype}")
    return _bfloat16() if dtype.name == "bfloat16" else np.dtype(dtype.name)


@functools.lru_cache(maxsize=64)
def name_of(dtype: np.dtype[Any]) -> str:
    """Return a supported element type's name."""
    return str(dtype.name)


def _bfloat16() -> np.dtype[Any]:
    try:
        import ml_dtypes
    except ImportError:
        raise TypeError("dtype: bfloat16 needs the package ml_dtypes (`pip install ml_dtypes`)") from None
    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return dtype


def as_array(buffer: object) -> Array:
    """Return an array over the memory of `buffer`, of any shape, type and strides; BufferError if on a device."""
    if isinstance(buffer, np.ndarray):
        return buffer
    if isinstance(buffer, np.generic):
        return np.asarray(buffer)
    try:
        return np.asarray(memoryview(buffer))  # type: ignore[arg-type]
    except TypeError:
        pass  # exports no PEP 3118 buffer
    if hasattr(buffer, "__dlpack__") and hasattr(buffer, "__dlpack_device__"):
        if (where := device_type(buffer)) is not None:
            raise _on_device(buffer, where[0])
        return _from_dlpack(buffer)
    if hasattr(buffer, "__cuda_array_interface__"):
        raise _on_device(buffer, "a CUDA device")
    hint = "; convert it with numpy.asarray" if isinstance(buffer, (bool, int, float, list, tuple)) else ""
    raise TypeError(
        f"expected a buffer (PEP 3118, DLPack or __cuda_array_interface__), got {type(buffer).__name__}{hint}"
    )


def _from_dlpack(buffer: Any) -> Array:
    """Return an array that is writable if the memory is, even if NumPy would treat the exporter as read-only."""
    try:
        array = np.from_dlpack(buffer)
    except (RuntimeError, BufferError):  # perhaps an element type that NumPy does not know
        words, name = words_of_host(buffer)
        dtype = checked_dtype(name)
        if words is None:
            raise
        return words.view(dtype)
    if not array.flags.writeable and hasattr(buffer, "__array__"):
        other = np.asarray(buffer)
        if other.flags.writeable and other.dtype == array.dtype and _address(other) == _address(array):
            return other
    return array


def _address(array: Array) -> tuple[Any, ...]:
    return array.__array_interface__["data"][0], array.shape, array.strides


def device_type(buffer: Any) -> tuple[str, int, int] | None:
    """Return name, DLPack type and number of a DLPack exporter's device; None for the host."""
    kind, number = (int(value) for value in buffer.__dlpack_device__())
    if kind in _ON_HOST:
        return None
    return f"{_DEVICES.get(kind, f'device of DLPack type {kind}, number')} {number}", kind, number


def _on_device(buffer: object, where: str) -> BufferError:
    return BufferError(
        f"expected host memory, got {type(buffer).__name__} on {where}: copy it to the host first; on CUDA devices, "
        "use preduce, or make partial_allreduce, partial_reduce or pairwise_averaging with such an array"
    )


def _is_spec(candidate: object) -> TypeGuard[list[Any] | tuple[Any, ...]]:
    """Return True for a specification as in mpi4py (see `_array_of_spec`), but not for a list of numbers."""
    return (
        isinstance(candidate, (list, tuple))
        and len(candidate) in (2, 3, 4)
        and not isinstance(candidate[0], (bool, int, float, complex, list, tuple))
    )


def _array_of_spec(spec: list[Any] | tuple[Any, ...]) -> Array:
    """Return `count` elements of the given type, after the first `displ`, as a flat array that shares the memory.

    `spec`: `[buffer, count]`, `[buffer, type]`, `[buffer, count, type]` or `[buffer, count, displ, type]`, where
    `count` may be `(count, displ)`.
    """
    buffer, *middle, last = spec
    has_kind = len(spec) > 2 or isinstance(last, str) or _is_mpi_datatype(last)
    count, displacement = (*(middle if has_kind else [last]), None, None)[:2]
    if isinstance(count, tuple) and len(count) == 2 and displacement is None:
        count, displacement = count
    for number in (count, displacement):
        if isinstance(number, (list, tuple)) or np.ndim(number) > 0:
            raise TypeError(
                f"buffer: expected one block, [buffer, count, displ, type], got {number!r}, as in mpi4py's vector form "
                "[buffer, counts, displs, type]; every rank passes the same number of elements: "
                "give one count and one displ, or copy the blocks into one array"
            )
    return _part_of(buffer, count, displacement, last if has_kind else None)


def _part_of(buffer: object, count: Any, displacement: Any, kind: Any) -> Array:
    array = contiguous_array(buffer)
    flat = array.reshape(-1)
    if kind is not None:
        dtype = checked_dtype(kind)
        if array.dtype != dtype:
            if array.dtype.itemsize != 1:  # only raw bytes are read as another type
                raise TypeError(f"buffer: expected elements of {dtype}, as specified, got {array.dtype}")
            if array.nbytes % dtype.itemsize:
                raise ValueError(f"buffer: expected a whole number of {dtype} elements, got {array.nbytes} bytes")
            flat = flat.view(dtype)
    begin = 0 if displacement is None else _number("displacement", displacement, flat.size)
    return flat[begin:] if count is None else flat[begin : begin + _number("count", count, flat.size - begin)]


def _number(what: str, value: Any, at_most: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"buffer: expected [buffer, count, type] with an integer {what}, got {value!r}") from None
    if not 0 <= number <= at_most:
        raise ValueError(f"buffer: expected a {what} of 0 to {at_most}, the number of elements, got {number}")
    return number


def contiguous_array(buffer: object) -> Array:
    """Return an array over a buffer if it is C-contiguous; otherwise raise `BufferError`."""
    array = as_array(buffer)
    if not array.flags.c_contiguous:
        copy = "x.contiguous()" if hasattr(buffer, "contiguous") else "numpy.ascontiguousarray(x)"  # PyTorch's tensors
        raise BufferError(
            f"expected a C-contiguous buffer, got shape {array.shape} with strides {array.strides} (bytes); "
            f"if you want a copy, pass {copy}"
        )
    return array


def array_of(buffer: object) -> Array:
    """Return the C-contiguous array of a buffer or of a specification such as `[buffer, count, type]`, of any type."""
    return _array_of_spec(buffer) if _is_spec(buffer) else contiguous_array(buffer)


def describe(buffer: object) -> BufferDescription:
    """Return shape and element type of a buffer or of a specification such as `[buffer, count, type]`."""
    array = array_of(buffer)
    return BufferDescription(array.shape, checked_dtype(array.dtype))


def matching_array(
    buffer: object, expected: BufferDescription, *, name: str | None = None, writable: bool = False
) -> Array:
    """Return an array that shares the memory of `buffer`, or of a specification such as `[buffer, count, type]`.

    TypeError if the element type differs from `expected`, ValueError if the count does; the shape may differ.
    BufferError if the buffer is read-only and must be `writable`. Errors begin with `name`.
    """
    try:
        return _matching_array(buffer, expected, writable)
    except (ValueError, TypeError, BufferError) as error:
        if name is None:
            raise
        raise with_prefix(error, name) from None


def _matching_array(buffer: object, expected: BufferDescription, writable: bool) -> Array:
    array = array_of(buffer)
    if array.dtype != expected.dtype:
        if not array.dtype.isnative:
            checked_dtype(array.dtype)  # raises a clearer error for types that are never reduced
        raise TypeError(f"expected elements of {expected.dtype}, got {array.dtype}")
    if array.size != expected.count:
        raise ValueError(
            f"expected shape {expected.shape} ({expected.count} elements), got {array.shape} ({array.size} elements)"
        )
    if writable and not array.flags.writeable:
        raise BufferError("expected a writable buffer, got a read-only one")
    return array


def as_bytes_exporter(array: Array) -> Array:
    """Return a view that exports PEP 3118, unlike arrays of ml_dtypes' types."""
    return array.view(np.uint16) if array.dtype.name == "bfloat16" else array
