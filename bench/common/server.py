"""The parts of bench/server.py without MPI: servers, speeds, one cell and its record, and the check of weights."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from pycollectives.servers import sync as models
from pycollectives.simulation.parameter_server import ServerSummary, simulate

from . import workers
from .gossip import LOST, TORN, step_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pycollectives.servers import ServerStatistics

    from .gossip import Slowdown
    from .output import Record

    Floats = NDArray[np.float64]

BSP = "bsp"
NODE = "node"
DISCARDED = -1


def parse_syncs(text: str) -> list[str]:
    """Parse a list separated by commas. No duplicates; BSP is first, as the baseline."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if isinstance(models.parse(name), models.EAMSGD):
            raise ValueError("expected a model in which gradients are pushed, got eamsgd, which pushes weights")
    return list(dict.fromkeys([BSP, *names]))


def model_of(name: str) -> models.Synchronization:
    """Return the model, which takes no worker out: with fewer cores than ranks, any worker may pause."""
    found = models.parse(name)
    return replace(found, patience=math.inf) if isinstance(found, models.Patient) else found


@dataclass(frozen=True)
class Servers:
    """The ranks that keep the weights. With the weights in a node's memory, all ranks are workers."""

    number: int | None  # number of servers, the lowest ranks; None for the memory of the node

    @classmethod
    def parse(cls, text: str) -> Servers:
        """Parse a number, or 'node'."""
        if text == NODE:
            return cls(None)
        if not (text.isdecimal() and int(text) > 0):
            raise ValueError(f"expected a positive number or 'node', got {text!r}")
        return cls(int(text))

    def __str__(self) -> str:
        return NODE if self.number is None else str(self.number)

    @property
    def argument(self) -> int | Literal["node"]:
        """Return the argument for `Communicator.parameter_server`."""
        return NODE if self.number is None else self.number

    def workers(self, ranks: int) -> list[int]:
        """Return the ranks of the workers; ValueError if there is none."""
        first = self.number or 0
        if first >= ranks:
            raise ValueError(f"expected more ranks than servers, of which there are {first}; got {ranks}")
        return list(range(first, ranks))


@dataclass(frozen=True)
class Speeds:
    """Each worker's own, constant factor of the computing time, drawn from an interval with the seed."""

    least: float = 1.0
    most: float = 1.0

    @classmethod
    def parse(cls, text: str) -> Speeds:
        """Parse uniform:LEAST:MOST, or none."""
        if text == "none":
            return cls()
        kind, _, rest = text.partition(":")
        try:
            least, most = map(float, rest.split(":"))
        except ValueError:
            least = most = 0.0
        if kind != "uniform" or not 0 < least <= most < 1e6:
            raise ValueError(f"expected uniform:LEAST:MOST with 0 < LEAST <= MOST, or none, got {text!r}")
        return cls(least, most)

    def __str__(self) -> str:
        return "none" if self.least == self.most == 1 else f"uniform:{self.least:g}:{self.most:g}"

    def factors(self, workers: int, seed: int) -> NDArray[np.float64]:
        return np.random.default_rng(seed).uniform(self.least, self.most, workers)


@dataclass(frozen=True, kw_only=True)
class Setting(workers.Setting):
    speeds: Speeds
    slowdown: Slowdown

    def check(self, servers: Servers, *, micro: bool) -> None:
        """Raise ValueError if these servers leave no worker, or a slow rank is no worker."""
        workers = range(1, self.ranks) if micro else servers.workers(self.ranks)
        if not workers:
            raise ValueError(f"expected 2 ranks or more, got {self.ranks}")
        for rank in self.slowdown.factors:
            if rank not in workers:
                raise ValueError(f"expected the rank of a worker, {workers[0]} to {workers[-1]}, got {rank}")

    def seconds(self, servers: Servers) -> dict[int, float]:
        """Return each worker's sleep in an iteration, by its rank."""
        workers = servers.workers(self.ranks)
        drawn = self.speeds.factors(len(workers), self.seed)
        return {
            rank: self.compute * factor * self.slowdown.factors.get(rank, 1.0)
            for rank, factor in zip(workers, drawn, strict=True)
        }


@dataclass(frozen=True)
class Outcome:
    """One worker's run."""

    rank: int
    start: float  # on this rank's clock
    begins: Floats  # begins of its push-pulls, seconds since then
    ends: Floats
    staleness: NDArray[np.int64]  # of its gradients; DISCARDED for discarded ones
    supersteps: int
    superstep_s: float | None  # the mean length
    slack_s: float | None  # the mean wait of the first worker at the end of a superstep
    least: float  # range of the elements of the final weights
    most: float

    @classmethod
    def of(
        cls,
        rank: int,
        start: float,
        rows: Sequence[tuple[float, float, int]],
        statistics: ServerStatistics,
        least: float,
        most: float,
    ) -> Outcome:
        """`rows`: per iteration, begin and end of the push-pull since the start, and the gradient's staleness."""
        begins, ends, staleness = (np.array(column) for column in zip(*rows, strict=True))
        lengths, slacks = np.array(statistics.supersteps).T if statistics.supersteps else (None, None)
        return cls(
            rank=rank,
            start=start,
            begins=begins,
            ends=ends,
            staleness=staleness,
            supersteps=statistics.superstep,
            superstep_s=None if lengths is None else float(lengths.mean()),
            slack_s=None if slacks is None else float(slacks.mean()),
            least=least,
            most=most,
        )

    @property
    def used(self) -> int:
        """The number of its gradients that are in the weights."""
        return int((self.staleness != DISCARDED).sum())


@dataclass(frozen=True)
class ServerCell:
    """Figures of the time until the first worker has made all its iterations, as in the simulator."""

    sync: str
    iterations_per_s: float  # the mean over workers
    waiting_fraction: float
    staleness_mean: float
    outcomes: Sequence[Outcome]
    ideal: ServerSummary

    @classmethod
    def of(cls, sync: str, outcomes: Sequence[Outcome], ideal: ServerSummary) -> ServerCell:
        workers = on_one_clock(outcomes)
        end = min(float(worker.ends[-1]) for worker in workers)
        done = sum(int((worker.begins <= end).sum()) for worker in workers)
        waited = sum(float((worker.ends.clip(max=end) - worker.begins.clip(max=end)).sum()) for worker in workers)
        ages = np.concatenate([worker.staleness[worker.begins <= end] for worker in workers])
        ages = ages[ages != DISCARDED]
        staleness = float(ages.mean()) if len(ages) else 0.0
        return cls(sync, done / len(workers) / end, waited / len(workers) / end, staleness, workers, ideal)


def on_one_clock(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return times since the first start if ranks share a clock (one machine), otherwise as if all began together."""
    first = min(outcome.start for outcome in outcomes)
    if max(outcome.start for outcome in outcomes) - first >= 1.0:
        return list(outcomes)
    late = [outcome.start - first for outcome in outcomes]
    return [
        replace(outcome, begins=outcome.begins + by, ends=outcome.ends + by)
        for outcome, by in zip(outcomes, late, strict=True)
    ]


def ideal_of(sync: str, seconds: Sequence[float], iterations: int) -> ServerSummary:
    """Simulate the same rules with these times and no communication cost."""
    return simulate(model_of(sync), np.repeat(np.array(seconds)[:, None], iterations, axis=1))


def weight_of_gradient(sync: str, workers: int) -> float | None:
    """Return the weight of each gradient under the model; None if it depends on the time of arrival."""
    kind = models.parse(sync)
    if isinstance(kind, models.BSP):
        return 1 / workers
    immediate = (models.ASP, models.SSP, models.DSSP, models.ElasticBSP, models.Ringmaster)
    return 1.0 if isinstance(kind, immediate) else None


def audit(sync: str, outcomes: Sequence[Outcome]) -> list[str]:
    """Return findings. The weights must be the sum of the used gradients, each once, as the model weighs them."""
    weight = weight_of_gradient(sync, len(outcomes))
    expected = None
    if weight is not None:
        expected = -weight * sum(step_of(outcome.rank) * outcome.used for outcome in outcomes)
    found = []
    for outcome in outcomes:
        says = f"rank {outcome.rank}: elements of the weights say {outcome.least:g} to {outcome.most:g}"
        if not outcome.most - outcome.least <= TORN * max(abs(outcome.most), 1.0):
            found.append(says)
        elif expected is not None and not abs(outcome.most - expected) <= LOST * (weight or 1.0) * step_of(2):
            found.append(f"{says}, and what was pushed comes to {expected:g}")
    return found


def server_record(setting: Setting, servers: Servers, cell: ServerCell, bsp: ServerCell) -> Record:
    """Return the keys of a cell; the caller adds the origin. `bsp`: BSP with the same speeds."""
    ideal, outcomes = cell.ideal, cell.outcomes
    return {
        "bench": "server",
        "collective": "parameter_server",
        "sync": cell.sync,
        "servers": str(servers),
        "workers": len(outcomes),
        **setting.keys(),
        "compute_ms": setting.compute * 1e3,
        "speeds": str(setting.speeds),
        "slowdown": str(setting.slowdown),
        "iterations_per_s": round(cell.iterations_per_s, 4),
        "ideal_iterations_per_s": round(ideal.iterations_per_s, 4),
        "of_ideal": round(cell.iterations_per_s / ideal.iterations_per_s, 4),
        "baseline": BSP,
        "speedup": round(cell.iterations_per_s / bsp.iterations_per_s, 4),
        "ideal_speedup": round(ideal.iterations_per_s / bsp.ideal.iterations_per_s, 4),
        "waiting_fraction": round(cell.waiting_fraction, 5),
        "ideal_waiting_fraction": round(ideal.waiting_fraction, 5),
        "staleness_mean": round(cell.staleness_mean, 4),
        "supersteps": outcomes[0].supersteps,
        "superstep_ms": _milliseconds(outcomes[0].superstep_s),
        "slack_ms": _milliseconds(outcomes[0].slack_s),
        "used": sum(outcome.used for outcome in outcomes),
        "verified": setting.verify,
    }


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(1e3 * seconds, 3)
