"""Several arrays in one buffer, so that one message carries all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from .buffers import as_array, checked_dtype

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .typing import Array, Buffer


def flatten(arrays: Iterable[Buffer]) -> tuple[Array, tuple[Array, ...]]:
    """Fuse arrays into one flat buffer, for `Communicator.preduce` and `PartialReduce.average` (Ripples, section 6.1).

    Parameters
    ----------
    arrays
        At least one array, of any shapes and the same element type.

    Returns
    -------
    flat : ndarray
        All elements, in the order of the arrays. If the arrays already lie one after another in one buffer, `flat` is
        that memory; otherwise it is a copy, independent of the arrays.
    views : tuple of ndarray
        Views of `flat` with the shapes of the arrays. Use them in place of the arrays.

    Raises
    ------
    ValueError, TypeError
        There is no array, the arrays have different element types or one that cannot be reduced, or `arrays` is a
        mapping or a single array.

    >>> weights, bias = np.ones((2, 3)), np.zeros(3)
    >>> flat, (weights, bias) = flatten([weights, bias])
    >>> flat[:] = 7
    >>> bias
    array([7., 7., 7.])
    >>> again, _ = flatten([weights, bias])
    >>> np.shares_memory(again, flat)
    True
    """
    if isinstance(arrays, Mapping):
        raise TypeError("flatten: expected arrays, got a mapping: pass its values()")
    if isinstance(arrays, np.ndarray):
        raise TypeError("flatten: expected several arrays, got one: pass [array], or array.reshape(-1) itself")
    parts = [as_array(array) for array in arrays]
    if not parts:
        raise ValueError("flatten: expected at least one array")
    types = {checked_dtype(part.dtype) for part in parts}
    if len(types) > 1:
        names = ", ".join(sorted(str(dtype) for dtype in types))
        raise ValueError(f"flatten: expected arrays of one element type, got {names}")
    flat = _joint_memory(parts)
    if flat is None:
        flat = np.concatenate([part.reshape(-1) for part in parts])
    ends = np.cumsum([part.size for part in parts])
    views = (flat[end - part.size : end].reshape(part.shape) for end, part in zip(ends, parts, strict=True))
    return flat, tuple(views)


def _joint_memory(parts: list[Array]) -> Array | None:
    """Return the joint memory of arrays that lie one after another in one array, otherwise None."""
    filled = [part for part in parts if part.size]
    if not filled or not all(part.flags.c_contiguous for part in filled):
        return None
    owner = _owner(filled[0])
    starts = [part.__array_interface__["data"][0] for part in filled]
    adjacent = all(
        start + part.nbytes == following for start, part, following in zip(starts, filled, starts[1:], strict=False)
    )
    if not adjacent or not owner.flags.c_contiguous or any(_owner(part) is not owner for part in filled):
        return None
    first = starts[0] - owner.__array_interface__["data"][0]
    everything = owner.reshape(-1).view(np.uint8)[first : first + sum(part.nbytes for part in filled)]
    return everything.view(filled[0].dtype)


def _owner(array: Array) -> Array:
    """Return the array that owns the memory of `array`, possibly itself."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
