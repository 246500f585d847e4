"""Checks of the arrays that averages of models read and write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..support import buffers
from ..support.validation import with_prefix

if TYPE_CHECKING:
    from ..support.typing import Array


def readable_array(value: object, model: buffers.BufferDescription, name: str) -> Array:
    """Return the memory of an argument; raise, with the collective's name, if count or type differ from the model's."""
    try:
        return buffers.matching_array(value, model)
    except (ValueError, TypeError, BufferError) as error:
        raise with_prefix(error, name) from None


def writable_array(out: object, model: buffers.BufferDescription, name: str) -> Array:
    """Return the memory to which a model is written; raise as `readable_array`."""
    try:
        return buffers.writable_array(out, model)
    except (ValueError, TypeError, BufferError) as error:
        raise with_prefix(error, name) from None
