"""Find the best time for the next barrier, by ZipLine and the algorithms of its paper (ElasticBSP, section 5)."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from .rows import Barrier, extension, flattened

if TYPE_CHECKING:
    from .typing import Rows


def zipline_linear(rows: Rows) -> Barrier:
    """Return the optimal barrier in one pass over the points, with constant work for each (ours).

    The other algorithms take the same rows and raise the same errors; exact algorithms return the same barrier.

    Parameters
    ----------
    rows
        The increasing timestamps at which each worker ends its next iterations: an (n, R) array, or n arrays of any
        length; `int64` milliseconds or `float64` seconds.

    Returns
    -------
    Barrier
        The barrier, in the unit of the rows.

    Raises
    ------
    ValueError
        There is no row; or a row is empty, does not increase, or has a NaN or a timestamp beyond 2**62 or half of the
        largest float. The error's text names the row.
    TypeError
        The timestamps are neither `int64` nor `float64`, or rows have different types.

    >>> zipline_linear([[10, 20, 30], [14, 29]])
    Barrier(t_sync=30, d=1, iterations=(2, 1))
    """
    return Barrier(*extension().zipline_linear(*flattened(rows)))


def zipline(rows: Rows) -> Barrier:
    """Return the optimal barrier of `rows` by ZipLine (section 5.2, Algorithm 2): O(R n^2)."""
    return Barrier(*extension().zipline(*flattened(rows)))


def zipline_opt(rows: Rows) -> Barrier:
    """Return the optimal barrier of `rows` by ZipLineOpt, which skips candidates (section 5.3.1): at most O(R n^2)."""
    return Barrier(*extension().zipline_opt(*flattened(rows)))


def zipline_opt_bs(rows: Rows) -> Barrier:
    """Return the optimal barrier of `rows` by ZipLineOptBS (section 5.3.2): O(R n log n) comparisons."""
    return Barrier(*extension().zipline_opt_bs(*flattened(rows)))


def grid_scan(rows: Rows) -> Barrier:
    """Return a barrier of `rows` by GridScan, which may miss the optimum (section 5.1, Algorithm 1): O(R n).

    Its candidates are the points of the row that starts first, each with the closest points of the other rows.
    """
    return Barrier(*extension().grid_scan(*flattened(rows)))


def full_grid_scan(rows: Rows) -> Barrier:
    """Return a barrier of `rows` by GridScan from each row in turn (section 5.1): O(R n^2).

    It finds the optimum in the paper's data, and may miss it in other data.
    """
    return Barrier(*extension().full_grid_scan(*flattened(rows)))


def naive(rows: Rows) -> Barrier:
    """Return the optimal barrier of `rows` by trying all sets of points (section 5.1): O(R^n), for small tests."""
    points, ends = flattened(rows)
    extension().check(points, ends)
    times = [row.tolist() for row in np.split(points, ends[:-1])]

    def cost(choice: tuple[int, ...]) -> tuple[float, float, list[int]]:
        z = [row[iteration] for row, iteration in zip(times, choice, strict=True)]
        return max(z) - min(z), max(z), [-iteration for iteration in choice]

    best = min(product(*(range(len(row)) for row in times)), key=cost)
    d, t_sync, _ = cost(best)
    return Barrier(t_sync, d, best)
