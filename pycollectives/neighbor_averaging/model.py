"""The model that an average is of: what it may be made of, and the arrays that calls take and fill."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..support import buffers
from ..support.validation import with_prefix

if TYPE_CHECKING:
    from ..support.typing import Array

__all__ = ["checked_floats", "checked_model", "readable_array", "writable_array"]

FLOATS = ("float16", "bfloat16", "float32", "float64")


def checked_model(like: Any) -> buffers.BufferDescription:
    """Return the shape and element type of the argument `like`; `TypeError` or `BufferError`."""
    return checked_floats(buffers.describe(like))


def checked_floats(buffer: buffers.BufferDescription) -> buffers.BufferDescription:
    """Return it; `TypeError` if its elements cannot be averaged."""
    if buffer.dtype.name not in FLOATS:
        raise TypeError(f"like: expected elements of {', '.join(FLOATS)}, got {buffer.dtype}")
    return buffer


def readable_array(value: object, model: buffers.BufferDescription, name: str) -> Array:
    """Return the memory of an argument; raise, with the collective's name, if it has not the model's shape and type."""
    try:
        return buffers.matching_array(value, model)
    except (ValueError, TypeError, BufferError) as error:
        raise with_prefix(error, name) from None


def writable_array(out: object, model: buffers.BufferDescription, name: str) -> Array:
    """Return the memory that a model is written into; raise as `readable_array`."""
    try:
        return buffers.writable_array(out, model, exact_shape=True)
    except (ValueError, TypeError, BufferError) as error:
        raise with_prefix(error, name) from None
