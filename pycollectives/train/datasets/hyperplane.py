"""Points of a noisy hyperplane, which linear regression recovers (eager-SGD, section 7.2.1).

y = a . x + noise in 8 192 dimensions. 32 768 such points fill 1 GiB, too much for every rank of a node. A point is
therefore a function of (seed, number), and a rank makes the points of its batch. Coordinates are uniform on 256 levels,
mean 0 and variance 1, eight from each 64 bits of a counter-based generator: a batch of 256 points takes 1 ms. With
normal variates, it would take 18 ms.

Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014 (SplitMix64).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..values import Size  # noqa: TC001 - the registry evaluates it
from .base import Dataset, chunks

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEVEL = np.float32(1 / np.sqrt((256**2 - 1) / 12))  # 256 levels one apart have this inverse of a standard deviation


class Points:
    """An array of shape (count, dimensions) whose rows are made when they are used."""

    def __init__(self, count: int, dimensions: int, seed: int, first: int = 0) -> None:
        self.shape = (count, dimensions)
        words = -(-dimensions // 8)
        self._columns = np.arange(words, dtype=np.uint64)
        self._rows = np.arange(first * words, (first + count) * words, words, dtype=np.uint64)
        self._start = int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, which: NDArray[np.intp] | slice, /) -> NDArray[np.float32]:
        """Return the points of an array of indices, or of a slice."""
        counters = np.add.outer(self._rows[which], self._columns)
        levels = split_mix(counters, self._start).astype("<u8", copy=False).view(np.int8)[..., : self.shape[1]]
        points = levels.astype(np.float32)
        points += np.float32(0.5)  # -128 ... 127 becomes symmetric
        points *= LEVEL
        return points


def split_mix(counters: NDArray[np.uint64], start: int) -> NDArray[np.uint64]:
    """Replace `counters`, places in the sequence of SplitMix64, with the sequence's values for the seed `start`."""
    counters += np.uint64(1)
    counters *= np.uint64(0x9E3779B97F4A7C15)
    counters += np.uint64(start)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        counters ^= counters >> np.uint64(shift)
        counters *= np.uint64(factor)
    counters ^= counters >> np.uint64(31)
    return counters


def hyperplane(
    *, dimensions: Size = 8192, points: Size = 32768, validation: Size = 4096, noise: float = 1.88, seed: int = 0
) -> Dataset:
    """Return points of a hyperplane with normal coefficients, and normal noise of standard deviation `noise`.

    The paper gives neither the noise nor the number of validation points. Least squares ends at a validation loss of
    about noise^2 / (1 - dimensions / points). With the default noise this is 4.7, as in the paper.
    """
    random = np.random.default_rng([seed, 1])
    coefficients = random.standard_normal(dimensions, dtype=np.float32)

    def part(count: int, first: int) -> tuple[Points, NDArray[Any]]:
        x = Points(count, dimensions, seed, first)
        y = np.concatenate([rows @ coefficients for (rows,) in chunks((x,), 256)])
        y += np.float32(noise) * random.standard_normal(count, dtype=np.float32)
        return x, y

    return Dataset(part(points, 0), part(validation, points))
