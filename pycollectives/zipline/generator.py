"""Data for trying ZipLine, generated as in the paper (ElasticBSP, section 6.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..support.validation import checked_integer

if TYPE_CHECKING:
    from .typing import Int64s

INTERVAL_MS = (1000, 1500)
LATENCY_MS = (10, 50)
"""Range of start times, for processes that start on different computers."""


def generate(n: int, R: int, seed: int, *, history: int = 20) -> Int64s:  # noqa: N803 - the paper's letter
    """Return the next `R` iterations of `n` workers that have run for a while: (n, R) `int64` milliseconds.

    Worker p starts at s_p (10 to 50 ms) and needs i_p (1000 to 1500 ms) for each iteration; both are drawn uniformly.
    Its j-th iteration ends at j i_p + s_p (section 6.1). The points are the next R iterations of each worker after the
    slowest has made `history` iterations.

    Parameters
    ----------
    n, R
        The number of workers, and of points of each worker, >= 1.
    seed
        The same seed gives the same points.
    history
        Iterations of the slowest worker before the first point. With 0 all workers are at their start, and the earliest
        barrier is often the best.

    Returns
    -------
    numpy.ndarray
        `int64` milliseconds of shape (n, R).

    >>> generate(2, 3, seed=1, history=0)
    array([[1277, 2514, 3751],
           [1304, 2560, 3816]])
    """
    n = checked_integer("n", n, at_least=1)
    R = checked_integer("R", R, at_least=1)  # noqa: N806
    history = checked_integer("history", history, at_least=0)
    random = np.random.default_rng(checked_integer("seed", seed, at_least=0))
    interval = random.integers(*INTERVAL_MS, n, endpoint=True)
    start = random.integers(*LATENCY_MS, n, endpoint=True)
    now = int((start + history * interval).max()) if history else 0
    done = np.maximum(0, (now - start) // interval)
    future = done[:, np.newaxis] + np.arange(1, R + 1)
    points: Int64s = start[:, np.newaxis] + future * interval[:, np.newaxis]
    return points
