"""Data that shows its origin: a value times a pattern, for contributions and for weights."""

from __future__ import annotations

from math import isqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .arrays import HOST

if TYPE_CHECKING:
    from .arrays import Arrays

PERIOD = 7  # prime, so that blocks of a collective's algorithm start at different places of the pattern
PENDING = 2  # calls of one rank that one round can take: a late call of the previous iteration, and its own


def largest_exact(dtype: np.dtype[Any]) -> int:
    """Return the number up to which every integer is exact."""
    if dtype.kind in "iu":
        return int(np.iinfo(dtype).max)
    return 1 << (np.finfo(dtype).nmant + 1)


class Contributions:
    """The contributions of the ranks, from which a result shows exactly whose data it contains.

    A contribution is value * pattern with a random integer `value`, and all sums stay in the exact range of the dtype.
    A correct result is total * pattern, where `total` is the sum of the values that the round claims to have taken.
    """

    def __init__(self, dtype: np.dtype[Any], count: int, ranks: int) -> None:
        room = largest_exact(dtype) // (PENDING * ranks)
        if room < 1:
            raise ValueError(f"{dtype} cannot hold a verifiable sum of {ranks} ranks; use a wider type or --no-verify")
        steepest = min(PERIOD, isqrt(room))
        self.largest_value = room // steepest
        self._pattern = (np.arange(count) % PERIOD % steepest + 1).astype(dtype)
        self._expected = np.empty_like(self._pattern)

    def values(self, calls: int, seed: list[int]) -> list[int]:
        return [int(value) for value in np.random.default_rng(seed).integers(1, self.largest_value + 1, calls)]

    def fill(self, out: NDArray[Any], value: int) -> None:
        np.multiply(self._pattern, self._pattern.dtype.type(value), out=out)

    def total(self, result: NDArray[Any]) -> float | int | None:
        """Return the total in `result`; None if it is not a multiple of the pattern."""
        if result.size == 0:
            return 0
        np.multiply(self._pattern, result[0], out=self._expected)
        if not np.array_equal(self._expected, result):
            return None
        total: float | int = result[0].item()
        return total


Weights = NDArray[np.float32]

SAMPLES = 64  # weights that are checked in each iteration; at the end all are
TOLERANCE = 1e-5  # relative error of one average; float32 has 6e-8


def initial_value(rank: int) -> float:
    return float(rank + 1)


class Model:
    """One worker's weights. A few of them show the averages that were made.

    Worker r starts with initial_value(r) * pattern, and its computing changes nothing. After any averages, a worker's
    weights are again a value * pattern. Two numbers, the values before and after, describe a synchronization.

    `weights` is a part of `buffer` if more than the weights is sent.
    """

    def __init__(self, count: int, rank: int, *, extra: int = 0, arrays: Arrays = HOST) -> None:
        self._arrays = arrays
        self._pattern = (np.arange(count) % PERIOD + 1).astype(np.float32)
        self._places = np.unique(np.linspace(0, count - 1, SAMPLES).astype(np.int64))
        self._sampled_pattern = self._pattern[self._places]
        values = np.zeros(count + extra, np.float32)
        np.multiply(self._pattern, np.float32(initial_value(rank)), out=values[:count])
        self.buffer = arrays.mirror(values)
        self.weights = self.buffer[:count]

    def sampled_value(self) -> float | None:
        """Return the value from a few weights; None if they do not agree."""
        return _common(self._arrays.sample(self.weights, self._places) / self._sampled_pattern)

    def value(self) -> float | None:
        """Return the value from all weights; None if they do not agree."""
        return _common(self._arrays.download(self.weights) / self._pattern)


def _common(values: Weights) -> float | None:
    least, most = float(values.min()), float(values.max())
    return (least + most) / 2 if most - least <= TOLERANCE * abs(most) else None
