"""The barrier of rows that change one at a time: the problem of a parameter server's controller at every push."""

from __future__ import annotations

from typing import TYPE_CHECKING, SupportsIndex

import numpy as np

from ..support.validation import checked_integer
from .rows import Barrier, checked_row, extension, flattened

if TYPE_CHECKING:
    from .typing import Rows, Timestamps


class Incremental:
    """Keep the optimal barrier up to date while one row at a time changes; faster than `zipline_linear`.

    The barrier always equals the result of `zipline_linear`. For 1000 workers with 150 points each, an update takes
    about a twentieth of a full solution. In rare cases, when all of the best windows are gone, it takes as long as
    several full solutions.

    Parameters
    ----------
    rows
        As for `zipline_linear`, with the same errors.

    >>> solver = Incremental([[10, 20, 30], [14, 29]])
    >>> solver.barrier
    Barrier(t_sync=30, d=1, iterations=(2, 1))
    >>> solver.update(1, [18, 40])
    Barrier(t_sync=20, d=2, iterations=(1, 0))
    """

    def __init__(self, rows: Rows) -> None:
        points, ends = flattened(rows)
        self._dtype = points.dtype
        native = extension()
        self._solver = (native.IncrementalInt64 if self._dtype == np.int64 else native.IncrementalFloat64)(points, ends)
        self._barrier = Barrier(*self._solver.barrier())

    @property
    def barrier(self) -> Barrier:
        """The barrier of the current rows."""
        return self._barrier

    def update(self, worker: SupportsIndex, row: Timestamps) -> Barrier:
        """Replace the row of a worker with one of any length, and return the new barrier.

        Parameters
        ----------
        worker
            The number of the row.
        row
            The worker's new timestamps, as for `zipline_linear`.

        Raises
        ------
        ValueError, TypeError
            As for `zipline_linear`, or `worker` does not exist. No row has changed.
        """
        number = checked_integer("worker", worker, at_least=0, at_most=self._solver.size - 1)
        array = checked_row(number, row)
        if array.dtype != self._dtype:
            raise TypeError(f"row {number}: expected {self._dtype}, as the other rows have, got {array.dtype}")
        self._barrier = Barrier(*self._solver.update(number, np.ascontiguousarray(array)))
        return self._barrier
