"""One cell of a benchmark: the measurements in one setting, the baseline's, and the record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pycollectives.simulation.groups import simulate_groups
from pycollectives.simulation.mixing import mean_matrix, spectral_gap

from . import audit, workers
from .arrays import HOST
from .policies import SYNCHRONOUS, reports_every_group
from .summary import Summary

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .arrays import Place
    from .averaging import Run
    from .cli import Sweep
    from .output import Domain, Record
    from .policies import Generator, PolicyName
    from .timing import Window


@dataclass(frozen=True)
class Cell:
    """The measurements of a cell in microseconds; meaningful on rank 0."""

    latency: Summary
    mpi: dict[str, Summary]  # by the baseline's name; none with --no-baseline
    active_mean: float
    ideal_us: float
    ideal_mpi_us: float
    algorithm: str
    activation: str | None
    warmup: int  # calls of the longest warm-up
    stationary: bool  # whether every warm-up ended because the calls had stopped getting faster
    early: Summary | None = None  # latencies of all calls but the last one to arrive in each iteration

    @property
    def baseline(self) -> str | None:
        """The name of the first baseline."""
        return next(iter(self.mpi), None)

    @property
    def baseline_latency(self) -> Summary | None:
        return next(iter(self.mpi.values()), None)

    @property
    def speedup(self) -> float | None:
        return self.baseline_latency.mean / self.latency.mean if self.baseline_latency else None

    @property
    def ideal_speedup(self) -> float | None:
        """The speedup at zero cost; None if an ideal call takes no time."""
        return self.ideal_mpi_us / self.ideal_us if self.ideal_us > 0 else None

    @property
    def ideal_fraction(self) -> float | None:
        """The fraction of the ideal speedup that was reached."""
        return self.speedup / self.ideal_speedup if self.speedup and self.ideal_speedup else None


OTHER_BASELINES = {"MPI_Iallreduce": "iallreduce_us", "NCCL": "nccl_us"}
"""The baselines other than the first, and their keys."""


def cell_record(
    bench: str,
    sweep: Sweep,
    policy: PolicyName,
    size: int,
    ranks: int,
    domain: Domain,
    cell: Cell,
    place: Place = HOST.place,
) -> Record:
    """Return the keys of every cell; the caller adds its own keys and the origin."""
    others = {OTHER_BASELINES[name]: mpi.as_json() for name, mpi in cell.mpi.items() if name != cell.baseline}
    return {
        "bench": bench,
        "collective": "partial_allreduce",
        "policy": str(policy),
        "path": place.path(domain.path),
        "ranks": ranks,
        "ranks_per_node": domain.ranks_per_node,
        "bytes": size,
        "dtype": str(sweep.dtype),
        "algorithm": sweep.algorithm,
        "algorithm_used": cell.algorithm,
        "on_failure": sweep.on_failure,
        "activation": sweep.activation,
        "activation_used": cell.activation,
        "late": sweep.late,
        "seed": sweep.seed,
        "iterations": sweep.iterations,
        "latency_us": cell.latency.as_json(),
        "active_mean": round(cell.active_mean, 3),
        "ideal_us": round(cell.ideal_us, 3),
        "baseline": cell.baseline,
        "baseline_us": cell.baseline_latency.as_json() if cell.baseline_latency else None,
        **others,
        "early_us": None if cell.early is None else cell.early.as_json(),
        "speedup": round(cell.speedup, 4) if cell.speedup else None,
        "warmup": cell.warmup,
        "stationary": cell.stationary,
        "verified": sweep.verify,
        **place.as_json(),
    }


MODELLED = 2000  # iterations of a worker that never waits, in the zero-cost model


@dataclass(frozen=True, kw_only=True)
class Setting(workers.Setting):
    slowdown: str
    sleeps: list[float]  # seconds of an iteration's computing, by rank
    warmup: int
    place: Place = HOST.place

    @property
    def ideal_iterations_per_s(self) -> float:
        """Iterations per second if no rank waits and communication costs nothing."""
        return float(np.mean([1.0 / seconds for seconds in self.sleeps]))


@dataclass(frozen=True)
class GroupCell:
    generator: str
    iterations_per_s_of: list[float]  # by rank
    sync_fraction: float
    latency: Summary  # of a synchronization, in microseconds
    compute_us: float
    waited_us: float | None  # part of it: waiting for the group
    asking_us: float | None  # part of it: the service
    conflicts: float
    spread: float
    spectral_gap: float | None  # None if not all groups are known

    @property
    def iterations_per_s(self) -> float:
        return float(np.mean(self.iterations_per_s_of))

    @classmethod
    def of(cls, generator: str, run: Run, window: Window) -> GroupCell:
        latencies = np.concatenate([timeline.latencies(window) for timeline in run.timelines])
        computations = np.concatenate([timeline.computations(window) for timeline in run.timelines])
        waited = [
            history.syncs[number].waited
            for timeline, history in zip(run.timelines, run.histories, strict=True)
            for number in np.flatnonzero(timeline.within(window))
        ]
        return cls(
            generator=generator,
            iterations_per_s_of=[timeline.iterations_per_s(window) for timeline in run.timelines],
            sync_fraction=float(np.mean([timeline.sync_fraction(window) for timeline in run.timelines])),
            latency=Summary.of(latencies * 1e6),
            compute_us=float(computations.mean() * 1e6),
            waited_us=None if generator in SYNCHRONOUS else float(np.mean(waited) * 1e6),
            asking_us=None if generator in SYNCHRONOUS else _asking_us(run),
            conflicts=audit.conflicts(run.histories),
            spread=audit.spread(run.histories),
            spectral_gap=_gap(run) if reports_every_group(generator) else None,
        )


def _asking_us(run: Run) -> float:
    """Return the median time of the service."""
    seconds = audit.asking(run.histories, [timeline.begins for timeline in run.timelines])
    return float(np.median(seconds) * 1e6) if seconds else 0.0


def _gap(run: Run) -> float:
    """Return the spectral gap of the performed groups; see `pycollectives.simulation.mixing`."""
    ranks = len(run.histories)
    return spectral_gap(mean_matrix(audit.performed(run.histories), ranks))


def modelled_speedup(generator: Generator | None, setting: Setting, slowdown: Mapping[int, float]) -> float:
    """Return the speedup over the allreduce at zero communication cost (`pycollectives.simulation.groups`)."""
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
    """Return the keys of a cell; the caller adds the origin."""
    speedup = cell.iterations_per_s / baseline.iterations_per_s
    return {
        "bench": "groups",
        "collective": "allreduce" if cell.generator in SYNCHRONOUS else "partial_reduce",
        "generator": cell.generator,
        **setting.keys(),
        "path": setting.place.path(setting.domain.path),
        "compute_ms": setting.compute * 1e3,
        "slowdown": setting.slowdown,
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
        "baseline": "MPI_Allreduce" if setting.place.device == "cpu" else "staged MPI_Allreduce",
        "baseline_us": baseline.latency.as_json(),
        "baseline_iterations_per_s": round(baseline.iterations_per_s, 4),
        "speedup": round(speedup, 4),
        "model_speedup": round(model, 4),
        "model_fraction": round(speedup / model, 4),
        "verified": setting.verify,
        **setting.place.as_json(),
    }


def _rounded(values: Sequence[float]) -> list[float]:
    return [round(value, 4) for value in values]
