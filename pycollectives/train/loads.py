"""The load of a training: those of `pycollectives.loads`, and what needs the data or a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .. import loads
from .registry import Registry

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .batches import Batches
    from .registry import Choice

__all__ = ["OWN_LOADS", "load_of"]


def load_of(choice: Choice, batches: Batches, *, ranks: int, steps: int, seed: int) -> NDArray[np.float64]:
    """Return the seconds that each rank works in each step, shape (ranks, steps): see `pycollectives.loads`.

    Load `length`: a step takes `work` seconds in the mean, each batch as long as its longest example.
    """
    if choice.name not in (*loads.LOADS, *OWN_LOADS.names):
        raise ValueError(f"load: expected one of {', '.join((*loads.LOADS, *OWN_LOADS.names))}; got {choice.name!r}")
    if choice.name in OWN_LOADS.names:
        return np.asarray(OWN_LOADS.make(choice, batches, ranks, steps))
    for key, value in choice.options.items():
        if not isinstance(value, int | float):
            raise ValueError(f"load {choice.name!r}: {key}: expected a number, got {value!r}")
    options = {"work": 0.0, "skew": 0.0, **choice.options}
    return loads.make(choice.name, ranks=ranks, calls=steps, seed=seed, **options)


def _trace(batches: Batches, ranks: int, steps: int, *, file: str) -> NDArray[np.float64]:
    return loads.from_csv(Path(file), ranks=ranks, calls=steps)


def _length(batches: Batches, ranks: int, steps: int, *, work: float = 0.0) -> NDArray[np.float64]:
    return batches.work(steps) * work


OWN_LOADS = Registry("load", {"trace": f"{__name__}:_trace", "length": f"{__name__}:_length"})
"""Beside those of `pycollectives.loads`."""
