"""Data to try ZipLine on, as the paper made it (ElasticBSP, section 6.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..support.validation import checked_integer

if TYPE_CHECKING:
    from .typing import Int64s

__all__ = ["generate"]

INTERVAL_MS = (1000, 1500)
LATENCY_MS = (10, 50)
"""Of processes that start on different computers."""


def generate(n: int, R: int, seed: int, *, history: int = 20) -> Int64s:  # noqa: N803 - the paper's letter
    """Return the next `R` iterations of `n` workers that have run for a while: (n, R) `int64` milliseconds.

    Worker p starts at s_p, of 10 to 50 ms, and needs i_p, of 1000 to 1500 ms, for each iteration; both are drawn
    uniformly. Its j-th iteration ends at j i_p + s_p (section 6.1). When the slowest has made `history` iterations, the
    next R of each worker are predicted.

    Parameters
    ----------
    n, R
        Workers, and points of each, >= 1.
    seed
        The same seed gives the same points.
    history
        With 0 all workers are at their start; then the earliest barrier is often the best one.

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
