"""The parts of bench/gossip.py without MPI: methods, slowdowns, one cell and its record, and the check of models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

import pycollectives as pc

from . import workers
from .patterns import PERIOD
from .summary import Summary
from .workers import bytes_of_model
from .workload import parse_slowdown, show_slowdown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from .output import Record
    from .timing import Timeline, Window

ALLREDUCE = "allreduce"
COLLECTIVES = {
    ALLREDUCE: "allreduce",
    "full": "partial_allreduce",
    "d-psgd": "neighbor_averaging",
    "sgp": "push_sum",
    "ad-psgd": "pairwise_averaging",
    "a2cid2": "pairwise_averaging",
}
METHODS = tuple(COLLECTIVES)

TORN = 1e-4  # allowed relative difference of a model's elements: many averages in float32, each with 6e-8
LOST = 0.25  # allowed error of the mean, relative to the smallest effect of one delta


def parse_methods(text: str) -> list[str]:
    """Parse a list separated by commas, or 'all'. No duplicates; the allreduce is first, as the baseline."""
    names = [name.strip() for name in text.split(",")]
    if names == ["all"]:
        names = list(METHODS)
    for name in names:
        if name not in METHODS:
            raise ValueError(f"unknown method {name!r}; expected {', '.join(METHODS)}, or all")
    return list(dict.fromkeys([ALLREDUCE, *names]))


def parse_model_bytes(text: str) -> list[int]:
    """Parse sizes of float32 models, separated by commas."""
    return [bytes_of_model(part.strip()) for part in text.split(",")]


@dataclass(frozen=True)
class Slowdown:
    """The factors by which the work of some ranks takes longer."""

    factors: dict[int, float]

    @classmethod
    def parse(cls, text: str) -> Slowdown:
        """Parse RANK:FACTOR, several ranks separated by commas; 'none' or an empty text for no rank."""
        factors = parse_slowdown("" if text == "none" else text)
        for rank, factor in factors.items():
            if factor <= 0:
                raise ValueError(f"expected RANK:FACTOR, with a factor > 0, got '{rank}:{factor:g}'")
        return cls(factors)

    def __str__(self) -> str:
        return show_slowdown(self.factors)

    def require(self, ranks: int) -> None:
        """Raise ValueError if it names a rank that does not exist."""
        if self.factors and max(self.factors) >= ranks:
            raise ValueError(f"expected a rank below {ranks}, got {max(self.factors)}")

    def seconds(self, *, ranks: int, compute: float) -> list[float]:
        """Return each rank's sleep in an iteration, which is `compute` seconds without slowdown."""
        return [compute * self.factors.get(rank, 1.0) for rank in range(ranks)]

    def others(self, ranks: int) -> list[int]:
        """Return the ranks without slowdown; all ranks if there are none."""
        unchanged = [rank for rank in range(ranks) if self.factors.get(rank, 1.0) == 1]
        return unchanged or list(range(ranks))


def check_topology(name: str, methods: Sequence[str], ranks: int) -> None:
    """Raise ValueError if there is no such graph for `ranks` ranks, or one of the methods cannot use it."""
    graph = pc.topology.by_name(name, ranks)
    for method in methods:
        try:
            if COLLECTIVES[method] == "pairwise_averaging":
                if not isinstance(graph, pc.topology.Topology):
                    raise ValueError(f"{name}: expected a graph that does not vary in time")
                graph.check_symmetric()
                graph.check_connected()
            elif method == "d-psgd":
                graph.check_doubly_stochastic("metropolis")
                graph.check_connected()
            elif method == "sgp":
                graph.check_column_stochastic("push-sum")
                graph.check_connected()
        except ValueError as error:
            raise ValueError(f"{method}: {error}") from None


def check_micro(name: str, ranks: int, ranks_per_node: int) -> None:
    """Raise ValueError if even ranks may not begin averages. Between nodes, one side of a bipartite graph does."""
    graph = pc.topology.by_name(name, ranks)
    if ranks < 2:
        raise ValueError(f"expected at least 2 ranks, got {ranks}")
    if ranks_per_node % 2 and 1 < ranks_per_node < ranks:
        raise ValueError(f"expected an even number of ranks per node, so that pairs are alike, got {ranks_per_node}")
    if ranks_per_node < ranks and graph.is_bipartite and isinstance(graph, pc.topology.Topology):
        missing = set(range(0, ranks // 2 * 2, 2)).difference(graph.sides()[0])
        if missing:
            raise ValueError(
                f"{name}: expected a graph in which even ranks begin averages between nodes, "
                f"and rank {min(missing)} does not"
            )


# --- The applied deltas and the final models --------------------------------------------------------------------------


def step_of(rank: int) -> float:
    """Return the multiple of `pattern` that a rank's iteration adds to its model; dyadic, so that sums are exact."""
    return 0.5 ** (rank % 3)


def pattern(count: int) -> NDArray[np.float32]:
    return (np.arange(count) % PERIOD + 1).astype(np.float32)


@dataclass(frozen=True)
class Final:
    """One rank's final model, a multiple of `pattern`: the least and the greatest multiple found in its elements."""

    least: float
    most: float
    applied: int

    @classmethod
    def of(cls, model: NDArray[np.float32], applied: int, *, weight: float = 1.0) -> Final:
        values = model.astype(np.float64) / pattern(model.size) * weight
        return cls(float(values.min()), float(values.max()), applied)


def audit_models(finals: Sequence[Final], *, equal: bool) -> list[str]:
    """Return findings. The sum of the models must be the sum of all applied deltas, whatever was averaged in between.

    `equal`: every model must be the mean.
    """
    ranks = len(finals)
    expected = sum(step_of(rank) * final.applied for rank, final in enumerate(finals)) / ranks
    tolerance = LOST * min(step_of(rank) for rank in range(ranks)) / ranks
    found = [
        f"rank {rank}: elements of its model say {final.least:g} to {final.most:g}"
        for rank, final in enumerate(finals)
        if not final.most - final.least <= TORN * max(abs(final.most), 1.0)
    ]
    mean = float(np.mean([(final.least + final.most) / 2 for final in finals]))
    if not abs(mean - expected) <= tolerance:
        found.append(f"what was applied comes to {expected:g} per rank, and the mean of the models is {mean:g}")
    if equal:
        found += [
            f"rank {rank}: its model says {final.most:g}, and the mean is {expected:g}"
            for rank, final in enumerate(finals)
            if not abs(final.most - expected) <= tolerance
        ]
    return found


# --- Cells ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Setting(workers.Setting):
    topology: str
    warmup: int


@dataclass(frozen=True)
class Outcome:
    """One rank's run of one method."""

    timeline: Timeline
    final: Final
    exchanges_per_s: float | None = None  # pairwise averages that this rank began
    between_nodes_per_s: float | None = None  # ... with ranks of other nodes
    staleness: float | None = None  # mean number of averages between a read and the next apply


@dataclass(frozen=True)
class GossipCell:
    method: str
    slowdown: Slowdown
    iterations_per_s_of: list[float]  # by rank
    waiting_fraction: float
    latency: Summary  # of an iteration without its computing, in microseconds
    compute_us: float
    exchanges_per_s: float | None  # of all ranks
    between_nodes_per_s: float | None
    staleness: float | None

    @property
    def iterations_per_s(self) -> float:
        return float(np.mean(self.iterations_per_s_of))

    @property
    def others_iterations_per_s(self) -> float:
        others = self.slowdown.others(len(self.iterations_per_s_of))
        return float(np.mean([self.iterations_per_s_of[rank] for rank in others]))

    @classmethod
    def of(cls, method: str, slowdown: Slowdown, outcomes: Sequence[Outcome], window: Window) -> GossipCell:
        timelines = [outcome.timeline for outcome in outcomes]
        exchanges = [outcome.exchanges_per_s for outcome in outcomes if outcome.exchanges_per_s is not None]
        between_nodes = [each.between_nodes_per_s for each in outcomes if each.between_nodes_per_s is not None]
        staleness = [outcome.staleness for outcome in outcomes if outcome.staleness is not None]
        return cls(
            method=method,
            slowdown=slowdown,
            iterations_per_s_of=[timeline.iterations_per_s(window) for timeline in timelines],
            waiting_fraction=float(np.mean([timeline.sync_fraction(window) for timeline in timelines])),
            latency=Summary.of(np.concatenate([timeline.latencies(window) for timeline in timelines]) * 1e6),
            compute_us=float(np.concatenate([timeline.computations(window) for timeline in timelines]).mean() * 1e6),
            exchanges_per_s=sum(exchanges) if exchanges else None,
            between_nodes_per_s=sum(between_nodes) if between_nodes else None,
            staleness=float(np.mean(staleness)) if staleness else None,
        )


def setting_record(setting: Setting, collective: str, method: str) -> Record:
    """Return the keys of every record of this benchmark."""
    return {
        "bench": "gossip",
        "collective": collective,
        "method": method,
        "topology": setting.topology,
        **setting.keys(),
    }


def slowdown_record(setting: Setting, slowdown: Slowdown) -> Record:
    """Return the keys of a timed measurement under a slowdown."""
    return {"compute_ms": setting.compute * 1e3, "slowdown": str(slowdown), "warmup": setting.warmup}


def gossip_record(setting: Setting, cell: GossipCell, baseline: GossipCell, equal: GossipCell | None) -> Record:
    """Return the keys of a cell; the caller adds the origin.

    `baseline`: the allreduce under the same slowdown; `equal`: the same method without slowdown.
    """
    ideal = [1 / seconds for seconds in cell.slowdown.seconds(ranks=setting.ranks, compute=setting.compute)]
    kept = None if equal is None else cell.others_iterations_per_s / equal.others_iterations_per_s
    return {
        **setting_record(setting, COLLECTIVES[cell.method], cell.method),
        **slowdown_record(setting, cell.slowdown),
        "iterations_per_s": round(cell.iterations_per_s, 4),
        "iterations_per_s_of": [round(value, 4) for value in cell.iterations_per_s_of],
        "others_iterations_per_s": round(cell.others_iterations_per_s, 4),
        "others_kept": _rounded(kept),
        "waiting_fraction": round(cell.waiting_fraction, 5),
        "exchanges_per_s": _rounded(cell.exchanges_per_s),
        "exchanges_between_nodes_per_s": _rounded(cell.between_nodes_per_s),
        "staleness_mean": _rounded(cell.staleness),
        "latency_us": cell.latency.as_json(),
        "compute_us": round(cell.compute_us, 3),
        "ideal_iterations_per_s": round(float(np.mean(ideal)), 4),
        "baseline": "MPI_Allreduce",
        "baseline_us": baseline.latency.as_json(),
        "baseline_iterations_per_s": round(baseline.iterations_per_s, 4),
        "speedup": round(cell.iterations_per_s / baseline.iterations_per_s, 4),
        "verified": setting.verify,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


@dataclass(frozen=True)
class ExchangeCell:
    """Microseconds per exchange, for consecutive exchanges; a sample per block and pair."""

    bytes: int
    neighbor: str  # "awake" or "asleep"
    latency: Summary
    baseline: Summary
    skipped: float  # the share of omitted segments, which `latency` counts as not exchanged

    @property
    def speedup(self) -> float:
        return self.baseline.mean / self.latency.mean


def exchange_record(setting: Setting, cell: ExchangeCell) -> Record:
    return {
        **setting_record(setting, "pairwise_averaging", "exchange"),
        "bytes": cell.bytes,
        "model_bytes": cell.bytes,
        "neighbor": cell.neighbor,
        "latency_us": cell.latency.as_json(),
        "skipped": round(cell.skipped, 5),
        "baseline": "MPI_Sendrecv",
        "baseline_us": cell.baseline.as_json(),
        "speedup": round(cell.speedup, 4),
        "verified": setting.verify,
    }
