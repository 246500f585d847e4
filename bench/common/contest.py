"""Find the fastest contestant at each size, from several runs of each."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from math import prod
from statistics import median
from typing import TYPE_CHECKING, Any

from .summary import Summary

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Line = dict[str, Any]


def read_lines(text: str) -> list[Line]:
    """Parse the output of a job (balanced.py); the last line of a killed job may be incomplete."""
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines.pop()
    return [json.loads(line) for line in lines]


@dataclass
class Contestant:
    """A collective under one setting, and the results of its runs."""

    name: str
    lines: list[Line] = field(default_factory=list)  # of all runs
    failure: str = ""  # of the first run that failed, which is also the last
    too_slow: bool = False  # not worth another run

    @property
    def goes_on(self) -> bool:
        return not (self.failure or self.too_slow)

    def at(self, size: int) -> Summary | None:
        """Return the median over runs of each figure; None if no run reached this size."""
        found = [line["latency_us"] for line in self.lines if line["bytes"] == size]
        return Summary(**{key: median(one[key] for one in found) for key in found[0]}) if found else None

    @property
    def stationary(self) -> bool:
        return all(line["stationary"] for line in self.lines)


@dataclass(frozen=True)
class Cell:
    """Our figures and the best of the others at one size, in microseconds."""

    bytes: int
    ours: Summary
    best: str
    best_us: Summary
    default: str
    default_us: Summary | None
    mean_of: dict[str, float | None]  # of every contestant but ours

    @property
    def speedup(self) -> float:
        return self.best_us.mean / self.ours.mean

    @property
    def speedup_over_default(self) -> float | None:
        return None if self.default_us is None else self.default_us.mean / self.ours.mean


REACH = 2.0
"""A factor far above the variation between runs of one setting on an otherwise idle machine."""


def within_reach(contestants: Sequence[Contestant], sizes: Sequence[int]) -> None:
    """Mark contestants whose median call takes at least REACH times the fastest's at every size as too slow."""
    medians = {one.name: {size: found.p50 for size in sizes if (found := one.at(size))} for one in contestants}
    fastest = {size: min((of[size] for of in medians.values() if size in of), default=0.0) for size in sizes}
    for one in contestants:
        of = medians[one.name]
        one.too_slow = not one.failure and not any(of[size] < REACH * fastest[size] for size in of)


def compare(ours: Contestant, others: Sequence[Contestant], size: int) -> Cell | None:
    """Return the cell of a size; None if we or all others have no run of it. The first of the others is the default."""
    mine = ours.at(size)
    measured = {other.name: summary for other in others if (summary := other.at(size)) is not None}
    if mine is None or not measured:
        return None
    best = min(measured, key=lambda name: measured[name].mean)
    means = {other.name: measured[other.name].mean if other.name in measured else None for other in others}
    default = others[0].name
    return Cell(size, mine, best, measured[best], default, measured.get(default), means)


def geometric_mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return prod(numbers) ** (1 / len(numbers))
