"""One cell of the benchmark `groups`: a generator, or the allreduce, under a slowdown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pycollectives.simulation.groups import simulate_groups
from pycollectives.simulation.mixing import mean_matrix, spectral_gap

from . import group_books
from .generators import ALLREDUCE, reports_every_group
from .summary import Summary

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .generators import Generator
    from .library import Domain
    from .records import Record
    from .timeline import Window
    from .workers import Run

MODELLED = 2000  # iterations of a worker that never waits, in the zero-cost model


@dataclass(frozen=True)
class Setting:
    """What the cells of a run have in common."""

    ranks: int
    domain: Domain
    bytes: int
    compute: float  # seconds
    slowdown: str
    sleeps: list[float]  # seconds of an iteration's computing, by rank
    iterations: int
    warmup: int
    seed: int
    verify: bool

    @property
    def ideal_iterations_per_s(self) -> float:
        """Nobody waits, and communication costs nothing."""
        return float(np.mean([1.0 / seconds for seconds in self.sleeps]))


@dataclass(frozen=True)
class GroupCell:
    generator: str
    iterations_per_s_of: list[float]  # by rank
    sync_fraction: float
    latency: Summary  # of a synchronisation, in microseconds
    compute_us: float
    waited_us: float | None  # of it, waiting for the group
    asking_us: float | None  # of it, the service alone
    conflicts: float
    spread: float
    spectral_gap: float | None  # None: not all groups are known

    @property
    def iterations_per_s(self) -> float:
        return float(np.mean(self.iterations_per_s_of))

    @classmethod
    def of(cls, generator: str, run: Run, window: Window) -> GroupCell:
        latencies = np.concatenate([timeline.latencies(window) for timeline in run.timelines])
        computations = np.concatenate([timeline.computations(window) for timeline in run.timelines])
        waited = [
            page.entries[number].waited
            for timeline, page in zip(run.timelines, run.pages, strict=True)
            for number in np.flatnonzero(timeline.within(window))
        ]
        return cls(
            generator=generator,
            iterations_per_s_of=[timeline.iterations_per_s(window) for timeline in run.timelines],
            sync_fraction=float(np.mean([timeline.sync_fraction(window) for timeline in run.timelines])),
            latency=Summary.of(latencies * 1e6),
            compute_us=float(computations.mean() * 1e6),
            waited_us=None if generator == ALLREDUCE else float(np.mean(waited) * 1e6),
            asking_us=None if generator == ALLREDUCE else _asking_us(run),
            conflicts=group_books.conflicts(run.pages),
            spread=group_books.spread(run.pages),
            spectral_gap=_gap(run) if reports_every_group(generator) else None,
        )


def _asking_us(run: Run) -> float:
    """The median."""
    seconds = group_books.asking(run.pages, [timeline.begins for timeline in run.timelines])
    return float(np.median(seconds) * 1e6) if seconds else 0.0


def _gap(run: Run) -> float:
    """Of the groups that were performed, as `pycollectives.mixing` has it of a generator."""
    ranks = len(run.pages)
    return spectral_gap(mean_matrix(group_books.performed(run.pages), ranks))


def modelled_speedup(generator: Generator | None, setting: Setting, slowdown: Mapping[int, float]) -> float:
    """Over the allreduce, if communication cost nothing (`pycollectives.simulation_groups`)."""
    speeds = [
        simulate_groups(
            choice,
            setting.ranks,
            setting.domain.ranks_per_node,
            seconds=MODELLED * setting.compute,
            work=setting.compute,
            slowdown=slowdown,
            seed=setting.seed,
        ).iterations_per_s
        for choice in (generator, None)
    ]
    return speeds[0] / speeds[1]


def group_record(setting: Setting, cell: GroupCell, baseline: GroupCell, model: float) -> Record:
    """The keys of a cell; the caller adds where it comes from."""
    speedup = cell.iterations_per_s / baseline.iterations_per_s
    return {
        "bench": "groups",
        "collective": "allreduce" if cell.generator == ALLREDUCE else "partial_reduce",
        "generator": cell.generator,
        "path": setting.domain.path,
        "ranks": setting.ranks,
        "ranks_per_node": setting.domain.ranks_per_node,
        "bytes": setting.bytes,
        "model_bytes": setting.bytes,
        "dtype": "float32",
        "compute_ms": setting.compute * 1e3,
        "slowdown": setting.slowdown,
        "seed": setting.seed,
        "iterations": setting.iterations,
        "warmup": setting.warmup,
        "iterations_per_s": round(cell.iterations_per_s, 4),
        "iterations_per_s_of": _rounded(cell.iterations_per_s_of),
        "sync_fraction": round(cell.sync_fraction, 5),
        "conflicts": round(cell.conflicts, 4),
        "latency_us": cell.latency.as_json(),
        "compute_us": round(cell.compute_us, 3),
        "waited_us": None if cell.waited_us is None else round(cell.waited_us, 3),
        "asking_us": None if cell.asking_us is None else round(cell.asking_us, 3),
        "spread": cell.spread,
        "spectral_gap": None if cell.spectral_gap is None else round(cell.spectral_gap, 5),
        "ideal_iterations_per_s": round(setting.ideal_iterations_per_s, 4),
        "baseline": "MPI_Allreduce",
        "baseline_us": baseline.latency.as_json(),
        "baseline_iterations_per_s": round(baseline.iterations_per_s, 4),
        "speedup": round(speedup, 4),
        "model_speedup": round(model, 4),
        "model_fraction": round(speedup / model, 4),
        "verified": setting.verify,
    }


def _rounded(values: Sequence[float]) -> list[float]:
    return [round(value, 4) for value in values]
