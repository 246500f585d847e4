"""How ranks are slowed down: delays before each call, or slower computing of some workers."""

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
    """Seconds by which each rank is delayed before each call, (calls, ranks); the same on every rank.

    The patterns are the workloads of the same names in `pycollectives.simulation.workload`, with no work below the
    skew; lognormal delays have mean `skew_us` and shape 1.
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
    """Gives the core away: for oversubscribed runs."""
    if seconds > 0:
        time.sleep(seconds)


def spin(seconds: float) -> None:
    """Keeps the core busy, as computing would: for machines with a core per rank."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


INJECTORS: dict[str, Callable[[float], None]] = {"sleep": sleep, "spin": spin}


def parse_slowdown(text: str) -> dict[int, float]:
    """RANK:FACTOR, several separated by commas; nobody if `text` is empty."""
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
    """As it is parsed; 'none' if nobody is slow."""
    return ",".join(f"{rank}:{factor:g}" for rank, factor in sorted(slowdown.items())) or "none"


def seconds_of(slowdown: Mapping[int, float], *, ranks: int, compute: float) -> list[float]:
    """What each rank sleeps in an iteration, of `compute` seconds without the slowdown."""
    return [compute * (1.0 + slowdown.get(rank, 0.0)) for rank in range(ranks)]
