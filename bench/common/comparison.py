"""Decide whether one build of the library is slower than another, from cells paired by key over alternating passes.

A cell is the measurement of a benchmark under one setting. The ratio of a pass is this build's figure over the other
build's, above 1 if this build is slower. The ratio of a cell is the median over passes. The noise of a cell is the
largest difference between passes of the same build. A cell is slower if its ratio exceeds 1 by more than the limit and
by more than the noise. Among a hundred cells, some are slower by chance, so slower cells are measured again
(bench/compare.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from .contest import geometric_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Record = dict[str, Any]


@dataclass(frozen=True)
class Key:
    """The key of a cell, or of all cells of a benchmark at one number of ranks."""

    bench: str
    ranks: str  # "8", or "8:1" with one rank per node
    cell: str  # "solo 32768"; ALL for all cells together

    def __str__(self) -> str:
        return f"{self.bench} {self.ranks} {self.cell}"


ALL = "geometric mean"


def _beyond_ideal(record: Record) -> dict[str, float]:
    """Return the time that communication adds to the ranks' unavoidable waiting for each other."""
    return {f"{record['policy']} {record['bytes']}": record["latency_us"]["mean"] - record["ideal_us"]}


def _median_latency(record: Record) -> dict[str, float]:
    return {f"{record['policy']} {record['bytes']}": record["latency_us"]["p50"]}


def _costs(record: Record) -> dict[str, float]:
    return {"CPU sleeping": record["cpu_fraction"], "slowdown": record["slowdown"]}


FIGURES: dict[str, Callable[[Record], dict[str, float]]] = {
    "skew": _beyond_ideal,
    "latency": _median_latency,
    "idle": _costs,
}
"""By benchmark: a function from a record to its cells with their figures, where less is better."""

SWEEPS = ("skew", "latency")
"""Benchmarks of policies over message sizes."""


def figures(bench: str, ranks: str, records: Iterable[Record]) -> dict[Key, float]:
    """Return the figures of the records that a run of a benchmark wrote."""
    found = {Key(bench, ranks, cell): value for record in records for cell, value in FIGURES[bench](record).items()}
    for key, value in found.items():
        if value <= 0:
            raise ValueError(f"expected a positive figure, found {value:g} for {key}")
    return found


@dataclass(frozen=True)
class Comparison:
    """A cell's figures, from the same number of passes of either build."""

    key: Key
    here: Sequence[float]
    other: Sequence[float]

    @property
    def ratios(self) -> list[float]:
        return [mine / its for mine, its in zip(self.here, self.other, strict=True)]

    @property
    def ratio(self) -> float:
        return median(self.ratios)

    @property
    def noise(self) -> float:
        """The largest excess of one pass over another of the same build, 0.1 for 10 %."""
        return max(max(passes) / min(passes) for passes in (self.here, self.other)) - 1

    def is_slower(self, limit: float) -> bool:
        return self.ratio > 1 + max(limit, self.noise)


@dataclass
class Passes:
    """The figures of both builds, as they arrive."""

    here: list[dict[Key, float]] = field(default_factory=list)
    other: list[dict[Key, float]] = field(default_factory=list)

    def comparisons(self) -> list[Comparison]:
        """Return every cell that all passes of both builds have; after a sweep's cells, their geometric mean."""
        everything = [*self.here, *self.other]
        keys = [key for key in everything[0] if all(key in figures for figures in everything)]
        found = []
        for bench, ranks in dict.fromkeys((key.bench, key.ranks) for key in keys):
            members = [key for key in keys if (key.bench, key.ranks) == (bench, ranks)]
            found += [self._comparison(key, [key]) for key in members]
            if bench in SWEEPS:
                found.append(self._comparison(Key(bench, ranks, ALL), members))
        return found

    def _comparison(self, key: Key, members: list[Key]) -> Comparison:
        def mean(figures: dict[Key, float]) -> float:
            return geometric_mean(figures[member] for member in members)

        return Comparison(key, [mean(of) for of in self.here], [mean(of) for of in self.other])

    def unpaired(self) -> list[Key]:
        """Cells that are not in every pass of both builds."""
        everything = [*self.here, *self.other]
        keys = dict.fromkeys(key for figures in everything for key in figures)
        return [key for key in keys if not all(key in figures for figures in everything)]


def order(passes: int) -> list[bool]:
    """Return the builds in order, True for this build: ABBA ABBA, so that a drift affects both equally."""
    return [side for number in range(passes) for side in ((True, False) if number % 2 == 0 else (False, True))]
