"""Read DLPack capsules: https://dmlc.github.io/dlpack/latest/c_api.html."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .typing import Array


class Tensor(ctypes.Structure):
    """DLTensor of DLPack."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("dimensions", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class Versioned(ctypes.Structure):
    """DLManagedTensorVersioned of DLPack."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    )


_READ_ONLY = 1  # in flags

_CODES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}


def tensor_of(capsule: object) -> Tensor:
    """Return the tensor of a capsule, which still owns the memory; `BufferError` if the capsule has another name."""
    return Tensor.from_address(_pointer_of(capsule, b"dltensor"))


def versioned_of(capsule: object) -> Versioned:
    """Return the tensor of a version 1 capsule, with its flags."""
    return Versioned.from_address(_pointer_of(capsule, b"dltensor_versioned"))


def _pointer_of(capsule: object, name: bytes) -> int:
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    try:
        pointer: int = pointer_of(capsule, name)
    except ValueError as error:
        raise BufferError(f"__dlpack__: expected a capsule named {name.decode()}: {error}") from None
    return pointer


def _exported(buffer: Any) -> tuple[object, Tensor, bool]:
    """Return the capsule of an exporter on the host, its tensor, and whether it is read-only (a flag of DLPack 1)."""
    try:
        capsule = buffer.__dlpack__(max_version=(1, 0))
    except TypeError:  # exports no versions
        capsule = buffer.__dlpack__()
    try:
        versioned = versioned_of(capsule)
    except BufferError:
        return capsule, tensor_of(capsule), False
    return capsule, versioned.tensor, bool(versioned.flags & _READ_ONLY)


def dtype_name(tensor: Tensor) -> str:
    """Return the name of the element type, NumPy's or "bfloat16"; `TypeError` for vectors."""
    if tensor.lanes != 1:
        raise TypeError(f"dtype: expected single elements, got vectors of {tensor.lanes}")
    bits = "" if tensor.code == 6 else tensor.bits
    return f"{_CODES.get(tensor.code, f'DLPack type {tensor.code} of bits ')}{bits}"


class _Words:
    """The memory of a capsule as 16-bit words, for NumPy, which keeps this object with its array."""

    def __init__(self, capsule: object, tensor: Tensor, *, read_only: bool) -> None:
        self.capsule = capsule
        shape = tuple(tensor.shape[: tensor.dimensions])
        steps = tuple(tensor.strides[: tensor.dimensions]) if tensor.strides else None
        self.__array_interface__: dict[str, Any] = {
            "version": 3,
            "typestr": np.dtype(np.uint16).str,
            "shape": shape,
            "strides": None if steps is None else tuple(2 * step for step in steps),
            "data": ((tensor.data or 0) + tensor.byte_offset, read_only),
        }


def words_of_host(buffer: Any) -> tuple[Array | None, str]:
    """Return 16-bit elements of an exporter on the host as words, and the name of their type.

    NumPy cannot read bfloat16 from a capsule. The words are writable unless the exporter marks its memory as read-only.
    For elements of another size the array is None.
    """
    capsule, tensor, read_only = _exported(buffer)
    name = dtype_name(tensor)
    return (np.asarray(_Words(capsule, tensor, read_only=read_only)) if tensor.bits == 16 else None), name
