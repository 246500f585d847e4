"""The weights that workers average, and how a few of them tell what was averaged.

Worker r starts with value(r) * pattern and its computing changes nothing, so that after any averages a worker's weights
are some value * pattern again: what a synchronisation did to a worker is two numbers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Weights = NDArray[np.float32]

PERIOD = 7  # as in contributions.py
SAMPLES = 64  # weights that are looked at in each iteration; at the end all are
TOLERANCE = 1e-5  # relative, of one average: float32 has 6e-8


def initial_value(rank: int) -> float:
    return float(rank + 1)


class Model:
    """One worker's; `weights` is a part of `buffer` if there is more to send than weights."""

    def __init__(self, count: int, rank: int, *, extra: int = 0) -> None:
        self._pattern = (np.arange(count) % PERIOD + 1).astype(np.float32)
        self._places = np.unique(np.linspace(0, count - 1, SAMPLES).astype(np.int64))
        self._sampled_pattern = self._pattern[self._places]
        self.buffer = np.zeros(count + extra, np.float32)
        self.weights: Weights = self.buffer[:count]
        np.multiply(self._pattern, np.float32(initial_value(rank)), out=self.weights)

    def sampled_value(self) -> float | None:
        """From a few weights; None if they do not agree."""
        return _common(self.weights[self._places] / self._sampled_pattern)

    def value(self) -> float | None:
        """From all weights; None if they do not agree."""
        return _common(self.weights / self._pattern)


def _common(values: Weights) -> float | None:
    least, most = float(values.min()), float(values.max())
    return (least + most) / 2 if most - least <= TOLERANCE * abs(most) else None
