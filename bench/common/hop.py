"""The parts of bench/hop.py without MPI: modes, delays, one cell and its record, and the check of models."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from pycollectives.hop import modes
from pycollectives.simulation.hop import HopSummary, largest_gap, simulate_hop

from . import workers
from .gossip import TORN, Slowdown, pattern

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pycollectives.simulation.hop import Computation
    from pycollectives.topology import Topology

    from .output import Record

STANDARD = "standard"


def parse_modes(text: str) -> list[str]:
    """Parse a list separated by commas. No duplicates; the standard mode is first, as the baseline."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        modes.parse(name)
    return list(dict.fromkeys([STANDARD, *names]))


@dataclass(frozen=True)
class Delays:
    """The factors by which computing takes longer, and the ranks."""

    factor: float | None = None  # of each rank with probability 1/P in each iteration (Hop, section 7.3.1)
    slowdown: Slowdown = Slowdown({})  # noqa: RUF009 - immutable

    @classmethod
    def parse(cls, text: str) -> Delays:
        """Parse RANK:FACTOR (several separated by commas), random:FACTOR or none."""
        kind, _, factor = text.partition(":")
        if kind != "random":
            return cls(slowdown=Slowdown.parse(text))
        try:
            value = float(factor)
        except ValueError:
            value = 0.0
        if not 1 <= value < 1e6:
            raise ValueError(f"expected random:FACTOR, with a factor of 1 or more, got {text!r}")
        return cls(factor=value)

    def __str__(self) -> str:
        return str(self.slowdown) if self.factor is None else f"random:{self.factor:g}"

    def work(self, *, ranks: int, iterations: int, compute: float, seed: int) -> NDArray[np.float64]:
        """Return seconds of computing by rank and iteration, the same on every rank."""
        base = np.array(self.slowdown.seconds(ranks=ranks, compute=compute))[:, None]
        if self.factor is None:
            return np.repeat(base, iterations, axis=1)
        slow = np.random.default_rng(seed).random((ranks, iterations)) < 1 / ranks
        return np.where(slow, self.factor * compute, compute)


@dataclass(frozen=True, kw_only=True)
class Setting(workers.Setting):
    graph: str
    max_ig: int
    computation: Computation


@dataclass(frozen=True)
class Outcome:
    """One rank's run."""

    start: float  # on this rank's clock
    entered: list[tuple[float, int, int]]  # time since then, rank, iteration
    end: float
    skipped: int
    waited: float  # seconds in `iterations` and `step`
    least: float  # range of the elements of the final model
    most: float


@dataclass(frozen=True)
class HopCell:
    mode: str
    delays: Delays
    summary: HopSummary
    ideal: HopSummary
    waiting_fraction: float

    @classmethod
    def of(cls, mode: str, delays: Delays, outcomes: Sequence[Outcome], ideal: HopSummary, iterations: int) -> HopCell:
        workers = on_one_clock(outcomes)
        ends = [outcome.start + outcome.end for outcome in workers]
        entered = [
            (time + outcome.start, rank, iteration) for outcome in workers for time, rank, iteration in outcome.entered
        ]
        summary = HopSummary(
            iterations / float(np.mean(ends)),
            largest_gap(entered, len(outcomes)),
            sum(outcome.skipped for outcome in outcomes),
        )
        waiting = float(np.mean([outcome.waited / outcome.end for outcome in outcomes]))
        return cls(mode, delays, summary, ideal, waiting)


def on_one_clock(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return starts since the first one if ranks share a clock (one machine), otherwise as if all began together."""
    first = min(outcome.start for outcome in outcomes)
    shared = max(outcome.start for outcome in outcomes) - first < 1.0
    return [replace(outcome, start=outcome.start - first if shared else 0.0) for outcome in outcomes]


def ideal_of(graph: Topology, mode: str, setting: Setting, work: NDArray[np.float64]) -> HopSummary:
    """Simulate the same protocol with these times and no communication cost."""
    kind, skip = modes.parse(mode)
    return simulate_hop(graph, kind, work, max_ig=setting.max_ig, skip=skip, computation=setting.computation)


def audit_models(outcomes: Sequence[Outcome]) -> list[str]:
    """Return findings. The elements of a model must be equal, since the averaged models have equal elements."""
    return [
        f"rank {rank}: elements of its model say {outcome.least:g} to {outcome.most:g}"
        for rank, outcome in enumerate(outcomes)
        if not outcome.most - outcome.least <= TORN * max(abs(outcome.most), 1.0)
    ]


def said_by(model: NDArray[np.float32]) -> tuple[float, float]:
    """Return the least and the greatest element of a model, as multiples of the pattern."""
    values = model.astype(np.float64) / pattern(model.size)
    return float(values.min()), float(values.max())


def hop_record(setting: Setting, cell: HopCell, standard: HopCell) -> Record:
    """Return the keys of a cell; the caller adds the origin. `standard`: the standard mode under the same delays."""
    return {
        "bench": "hop",
        "collective": "hop",
        "mode": cell.mode,
        "graph": setting.graph,
        "max_ig": setting.max_ig,
        "computation": setting.computation,
        **setting.keys(),
        "compute_ms": setting.compute * 1e3,
        "slowdown": str(cell.delays),
        "iterations_per_s": round(cell.summary.iterations_per_s, 4),
        "ideal_iterations_per_s": round(cell.ideal.iterations_per_s, 4),
        "of_ideal": round(cell.summary.iterations_per_s / cell.ideal.iterations_per_s, 4),
        "baseline": "standard",
        "speedup": round(cell.summary.iterations_per_s / standard.summary.iterations_per_s, 4),
        "ideal_speedup": round(cell.ideal.iterations_per_s / standard.ideal.iterations_per_s, 4),
        "max_gap": cell.summary.max_gap,
        "skipped": cell.summary.skipped,
        "waiting_fraction": round(cell.waiting_fraction, 5),
        "verified": setting.verify,
    }
