"""The input of the algorithms, a row of timestamps for each worker, and their result."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from types import ModuleType

    from .typing import Int64s, Timestamps

DTYPES = (np.dtype(np.int64), np.dtype(np.float64))


def checked_row(worker: int, row: Any) -> Timestamps:
    """Return a checked row as an array, or raise an error. The extension checks that the timestamps increase."""
    try:
        array = np.asarray(row)
    except ValueError as error:  # a list of lists of different lengths
        raise ValueError(f"row {worker}: expected an array of timestamps, got {row!r}: {error}") from None
    if array.ndim != 1:
        raise ValueError(f"row {worker}: expected an array of one dimension, got {array.ndim}")
    if array.size == 0:
        raise ValueError(f"row {worker}: expected timestamps, got none")
    if array.dtype not in DTYPES:
        raise TypeError(f"row {worker}: expected int64 milliseconds or float64 seconds, got {array.dtype}")
    return array


def flattened(rows: Any) -> tuple[Timestamps, Int64s]:
    """Return a copy of all points, row after row, and the end of each row.

    Raises
    ------
    ValueError, TypeError
        There is no row, or a row is not an array of timestamps or differs in type from the first. The text names that
        row.
    """
    if isinstance(rows, np.ndarray) and rows.ndim == 2 and rows.size > 0 and rows.dtype in DTYPES:
        count, length = rows.shape
        return rows.flatten(), np.arange(1, count + 1, dtype=np.int64) * length
    if not isinstance(rows, Iterable):
        raise TypeError(f"rows: expected an array of two dimensions, or one array per worker, got {rows!r}")
    arrays = [checked_row(worker, row) for worker, row in enumerate(rows)]
    if not arrays:
        raise ValueError("expected at least one row, got none")
    for worker, array in enumerate(arrays):
        if array.dtype != arrays[0].dtype:
            raise TypeError(f"row {worker}: expected {arrays[0].dtype}, as row 0 has, got {array.dtype}")
    return np.concatenate(arrays), np.cumsum([array.size for array in arrays], dtype=np.int64)


class Barrier(NamedTuple):
    """The time of the next barrier, and the iteration after which each worker reaches it (ElasticBSP, section 4.1).

    The times are in the unit of the rows: `int` milliseconds or `float` seconds.
    """

    t_sync: int | float
    """The barrier's time, max(Z*): the arrival of the last worker."""

    d: int | float
    """The time for which the first worker waits for the last one, max(Z*) - min(Z*)."""

    iterations: tuple[int, ...]
    """The index of each worker's point in its row. If the window has several, the exact algorithms give the latest."""


def extension() -> ModuleType:
    """Return `pycollectives._zipline`, which is loaded at first use; an `ImportError` shows how to build it."""
    try:
        from .. import _zipline
    except ImportError as error:
        raise ImportError(
            f"the extension pycollectives._zipline cannot be loaded: {error}. Build it: `pip install .`"
        ) from error
    return _zipline
