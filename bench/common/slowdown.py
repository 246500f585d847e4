"""Workers that are slowed down as in Ripples 7.4: so many iteration times of sleep are added to each iteration."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


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
