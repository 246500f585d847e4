"""Synthetic sequences of very different lengths, such as videos: inherently unbalanced work (eager-SGD, 7.3).

The 9 537 videos of UCF101 have 29 to 1 776 frames, 187 on average, with a standard deviation of 97 (eager-SGD, Figure
2a). A lognormal distribution of that mean and deviation, clipped, has this shape; time is divided by `scale`.

Classes form pairs, which have the same two patterns in opposite order, with noise. A model must remember the first
pattern to distinguish the two classes of a pair.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..values import Size  # noqa: TC001 - the registry evaluates it
from .base import Dataset

if TYPE_CHECKING:
    from numpy.typing import NDArray

SHORTEST, LONGEST, MEAN, DEVIATION = 29, 1776, 187.0, 97.0


def frame_counts(count: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Draw lengths of videos, in frames: a lognormal distribution fitted to UCF101's, clipped to its range."""
    variance = np.log1p((DEVIATION / MEAN) ** 2)
    frames = random.lognormal(np.log(MEAN) - variance / 2, np.sqrt(variance), count)
    return np.clip(np.rint(frames), SHORTEST, LONGEST).astype(np.int64)


def sequences(
    *,
    examples: Size = 4096,
    validation: Size = 2048,
    features: Size = 16,
    classes: int = 10,
    signal: float = 0.5,
    scale: float = 16.0,
    seed: int = 0,
) -> Dataset:
    """Return padded features, float32 of shape (n, longest, features), their lengths, and labels.

    Each pattern has `features` normal coefficients of standard deviation `signal`. The noise has standard deviation 1.
    """
    if classes < 2 or classes % 2:
        raise ValueError(f"expected an even number of classes, at least 2, got {classes}")
    if scale <= 0:
        raise ValueError(f"expected a scale above 0, got {scale}")
    random = np.random.default_rng(seed)
    patterns = random.normal(0, signal, (classes // 2, 2, features))
    patterns = np.concatenate([patterns, patterns[:, ::-1]])  # class c and c + classes / 2: opposite orders
    total = examples + validation
    length = np.maximum(2, np.rint(frame_counts(total, random) / scale)).astype(np.int64)
    label = random.integers(classes, size=total)
    time = np.arange(length.max())
    half = (2 * time >= length[:, np.newaxis]).astype(np.intp)
    padded = random.standard_normal((total, time.size, features), dtype=np.float32)
    padded += patterns.astype(np.float32)[label[:, np.newaxis], half]
    padded[time >= length[:, np.newaxis]] = 0
    arrays = (padded, length, label)
    return Dataset(
        tuple(array[:examples] for array in arrays),
        tuple(array[examples:] for array in arrays),
        lengths=length[:examples],
    )
