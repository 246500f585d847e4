"""Injected skew: how long each rank is held up before each timed call, and the holding up itself."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pycollectives.simulation import workload

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Floats = NDArray[np.float64]

PATTERNS = ("none", "linear", "one-late", "rotating", "lognormal", "trace")


def delay_matrix(
    pattern: str, *, ranks: int, calls: int, skew_us: float, seed: int = 0, trace: Path | None = None
) -> Floats:
    """Seconds by which each rank is delayed before each call, (calls, ranks); the same on every rank.

    The patterns are the loads of the same names in `pycollectives.simulation.workload`, with no work below the skew; lognormal
    delays have mean `skew_us` and shape 1.
    """
    unit = skew_us * 1e-6
    if pattern == "trace":
        if trace is None:
            raise ValueError("skew 'trace' needs a file")
        return workload.from_csv(trace, ranks=ranks, calls=calls).T
    if pattern == "none" or unit == 0:
        return np.zeros((calls, ranks))
    work = unit if pattern == "lognormal" else 0.0
    return workload.make(pattern, ranks=ranks, calls=calls, work=work, skew=unit, seed=seed).T


def sleep(seconds: float) -> None:
    """Gives the core away: for oversubscribed runs."""
    if seconds > 0:
        time.sleep(seconds)


def spin(seconds: float) -> None:
    """Keeps the core busy, as computing would: for machines with a core per rank."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


INJECTORS: dict[str, Callable[[float], None]] = {"sleep": sleep, "spin": spin}
