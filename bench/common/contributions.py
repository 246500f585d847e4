"""What the ranks contribute, so that a result tells exactly whose data is in it.

A contribution is value * pattern with a random integer `value`, and all sums stay where the dtype is exact. So a right
result is total * pattern, and `total` is the sum of exactly the values that the round claims to have taken.
"""

from __future__ import annotations

from math import isqrt
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

PERIOD = 7  # prime, so that no block of a collective's algorithm starts at the same place of the pattern as another
PENDING = 2  # calls of one rank that one round can take: a late one of the iteration before, and its own


def largest_exact(dtype: np.dtype[Any]) -> int:
    """Up to here, every integer is exact."""
    if dtype.kind in "iu":
        return int(np.iinfo(dtype).max)
    return 1 << (np.finfo(dtype).nmant + 1)


class Contributions:
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
        """The total that `result` shows; None if it is not a multiple of the pattern."""
        if result.size == 0:
            return 0
        np.multiply(self._pattern, result[0], out=self._expected)
        if not np.array_equal(self._expected, result):
            return None
        total: float | int = result[0].item()
        return total
