"""Slow ranks down by delays before each call, or by slower computing of some workers."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pycollectives.simulation import workload

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

Floats = NDArray[np.float64]

PATTERNS = ("none", "linear", "one-late", "rotating", "lognormal", "trace")


def delay_matrix(
    pattern: str, *, ranks: int, calls: int, skew_us: float, seed: int = 0, trace: Path | None = None
) -> Floats:
    """Return each rank's delay before each call in seconds, of shape (calls, ranks); the same on every rank.

    The patterns are the workloads of the same names in `pycollectives.simulation.workload`, without work besides the
    skew. Lognormal delays have mean `skew_us` and shape 1.
    """
    unit = skew_us / 1e6
    if pattern == "trace":
        if trace is None:
            raise ValueError("skew 'trace' needs a file")
        return workload.from_csv(trace, ranks=ranks, calls=calls).T
    if pattern == "none" or unit == 0:
        return np.zeros((calls, ranks))
    work = unit if pattern == "lognormal" else 0.0
    return workload.make(pattern, ranks=ranks, calls=calls, work=work, skew=unit, seed=seed).T


def sleep(seconds: float) -> None:
    """Sleep, which releases the core; for oversubscribed runs."""
    if seconds > 0:
        time.sleep(seconds)


def spin(seconds: float) -> None:
    """Keep the core busy like computing; for machines with a core per rank."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


INJECTORS: dict[str, Callable[[float], None]] = {"sleep": sleep, "spin": spin}


def parse_slowdown(text: str) -> dict[int, float]:
    """Parse RANK:FACTOR, several separated by commas; no rank if `text` is empty."""
    slowdown: dict[int, float] = {}
    for part in text.split(",") if text else ():
        rank, _, factor = part.strip().partition(":")
        try:
            number = float(factor)
        except ValueError:
            number = math.nan
        if not rank.isdecimal() or not (math.isfinite(number) and number >= 0):
            raise ValueError(f"expected RANK:FACTOR, with a factor >= 0, got {part!r}")
        if int(rank) in slowdown:
            raise ValueError(f"rank {rank} is slowed down twice")
        slowdown[int(rank)] = number
    return slowdown


def show_slowdown(slowdown: Mapping[int, float]) -> str:
    """Return the text that `parse_slowdown` reads; 'none' if no rank is slow."""
    return ",".join(f"{rank}:{factor:g}" for rank, factor in sorted(slowdown.items())) or "none"


def seconds_of(slowdown: Mapping[int, float], *, ranks: int, compute: float) -> list[float]:
    """Return each rank's sleep in an iteration, which is `compute` seconds without slowdown."""
    return [compute * (1.0 + slowdown.get(rank, 0.0)) for rank in range(ranks)]
