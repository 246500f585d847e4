"""Simulate a policy under a load, and report the figures that matter to a program.

A rank leaves after its last call. The figures therefore cover only the time until the first rank has made all its
calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..policies import Full, Policy
from ..support.costs import IDEAL, Costs

__all__ = ["Costs", "Summary", "elements_of", "seconds_for_all", "simulate", "step_columns"]

MOST_ELEMENTS = 1 << 24
"""The most elements of all ranks together, so that they fit into memory."""


@dataclass(frozen=True)
class Summary:
    """Figures of a simulated program while all its ranks are calling. Latencies are in microseconds, over all calls."""

    ranks: int
    calls: int  # of the fastest rank
    rounds: int  # that calls received
    latency_us_mean: float
    latency_us_p50: float
    latency_us_p99: float
    contributors_mean: float  # ranks with data in the received rounds; a round counts once
    active_mean: float  # the same, with fresh data
    staleness_mean: float  # rounds that completed between the contribution of data and the round that took it
    staleness_max: int
    # rounds that completed since the rank's previous call, without the one that the call received
    missed_mean: float
    missed_max: int
    late_fraction: float  # calls that came after a round that their rank had not received yet
    throughput: float  # speedup over the synchronous program: the ratio of mean seconds per call, including the work


def simulate(
    work: npt.NDArray[np.float64],
    policy: Policy,
    *,
    nbytes: int,
    algorithm: str,
    activation: str = "tree",
    costs: Costs = IDEAL,
    **options: Any,
) -> Summary:
    """Simulate the calls of all ranks under `policy`, and under a synchronous policy, with the engine's own protocol.

    `work`: seconds before each call, of shape (ranks, calls), see `pycollectives.simulation.workload`. `nbytes`: the
    bytes of one rank's data. `options`: options of the simulator, such as `late`, `max_staleness` or `delivery_seed`.
    """
    ranks, calls = work.shape

    def run(by: Policy) -> dict[str, Any]:
        names = {"algorithm": algorithm, "activation": activation}
        columns = _columns(work, by, "none", nbytes=nbytes, costs=costs, **names, **options)
        while_all_call = columns["done"] <= columns["done"][columns["call"] == calls - 1].min()
        return {name: column[while_all_call] for name, column in columns.items()}

    simulated = run(policy)
    latency_us = 1e6 * (simulated["done"] - simulated["called"])
    p50, p99 = np.percentile(latency_us, [50, 99])
    given, first = np.unique(simulated["round"], return_index=True)
    return Summary(
        ranks=ranks,
        calls=calls,
        rounds=len(given),
        latency_us_mean=float(latency_us.mean()),
        latency_us_p50=float(p50),
        latency_us_p99=float(p99),
        contributors_mean=float(simulated["contributors"][first].mean()),
        active_mean=float(simulated["active"][first].mean()),
        staleness_mean=float(simulated["staleness"].mean()),
        staleness_max=int(simulated["staleness"].max()),
        missed_mean=float(simulated["missed"].mean()),
        missed_max=int(simulated["missed"].max()),
        late_fraction=float(simulated["late"].mean()),
        throughput=_seconds_per_call(run(Full()), ranks) / _seconds_per_call(simulated, ranks),
    )


def _seconds_per_call(simulated: dict[str, Any], ranks: int) -> float:
    """Return the seconds of a call with the work before it, averaged over ranks."""
    calls = np.bincount(simulated["rank"], minlength=ranks)
    last = np.zeros(ranks)
    np.maximum.at(last, simulated["rank"], simulated["done"])
    last[calls == 0] = simulated["done"].max()  # its first call is not complete: at least this long
    return float((last / np.maximum(calls, 1)).mean())


def elements_of(algorithm: str, ranks: int, nbytes: int) -> int:
    """Return the number of elements for which a plan has the same messages as for `nbytes` bytes.

    ValueError if `algorithm` is unknown, or splits the data into too many parts to simulate `ranks` ranks.
    """
    from ..support.native import core

    count = min(core.parts_of_allreduce(algorithm, ranks), max(1, nbytes // 8))
    if count * ranks > MOST_ELEMENTS:
        raise ValueError(
            f"algorithm {algorithm!r} on {ranks} ranks: expected at most {MOST_ELEMENTS} elements on all ranks, got "
            f"{count} on each; simulate fewer ranks"
        )
    return count


def seconds_for_all(work: npt.NDArray[np.float64], policy: Policy, **options: Any) -> float:
    """Return the seconds until every rank has made its calls and flushed, at zero communication cost."""
    columns = _columns(work, policy, "flush", nbytes=4, algorithm="recursive_doubling", costs=IDEAL, **options)
    return float(columns["done"].max())


def step_columns(work: npt.NDArray[np.float64], policy: Policy) -> dict[str, npt.NDArray[Any]]:
    """Return the simulator's columns at zero communication cost, one entry per call, such as `done` in seconds."""
    return _columns(work, policy, "none", nbytes=4, algorithm="recursive_doubling", costs=IDEAL)


def _columns(
    work: npt.NDArray[np.float64],
    policy: Policy,
    ending: str,
    *,
    nbytes: int,
    algorithm: str,
    costs: Costs,
    **options: Any,
) -> dict[str, npt.NDArray[Any]]:
    """Return the simulator's columns, one entry per call, such as `rank`, `call`, `called` and `done` (in seconds)."""
    from ..support.native import core

    ranks, calls = work.shape
    count = elements_of(algorithm, ranks, nbytes)
    columns = core.simulate(
        size=ranks,
        work=np.ascontiguousarray(work),
        calls=np.full(ranks, calls, dtype=np.int64),
        ending=ending,
        count=count,
        payload_bytes=nbytes,
        algorithm=algorithm,
        latency=costs.latency,
        overhead=costs.overhead,
        gap_per_byte=costs.gap_per_byte,
        reduce_per_byte=costs.reduce_per_byte,
        record=False,
        **policy.for_size(ranks).engine_arguments(),
        **options,
    )
    if not (columns["call"] == calls - 1).any():
        raise RuntimeError(f"the simulated program hangs: {columns['deadlock']}")
    return {name: column for name, column in columns.items() if isinstance(column, np.ndarray)}
