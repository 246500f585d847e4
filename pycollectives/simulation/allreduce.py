"""What the simulator says of a policy under a load, in the figures that matter to a program.

A rank that has made its calls leaves the others in fewer, and at the end alone: so the figures are of the time in which
all ranks are calling, which ends when the first has made all of its calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..policies import Full, Policy
from ..support.costs import IDEAL, Costs

__all__ = ["Costs", "Summary", "elements_of", "seconds_for_all", "simulate"]

MOST_ELEMENTS = 1 << 24
"""Of all ranks, in the memory of this machine."""


@dataclass(frozen=True)
class Summary:
    """A simulated program while all its ranks are calling. Latencies in microseconds, over all calls and ranks.

    Attributes
    ----------
    calls
        That the fastest rank makes.
    rounds
        That calls were given.
    contributors_mean, active_mean
        Ranks with data, and with fresh data, in a round that a call was given; a round counts once.
    staleness_mean, staleness_max
        Rounds that data waited, from its handing over to the round that took it.
    missed_mean, missed_max
        Rounds that completed since the rank last looked, the one that it was given apart: what a late call has not seen
        while its rank worked.
    late_fraction
        Calls that came after a round that their rank had not been given yet.
    throughput
        Seconds of a call with its work in the synchronous program, the mean over ranks, over those under the policy.
    """

    ranks: int
    calls: int
    rounds: int
    latency_us_mean: float
    latency_us_p50: float
    latency_us_p99: float
    contributors_mean: float
    active_mean: float
    staleness_mean: float
    staleness_max: int
    missed_mean: float
    missed_max: int
    late_fraction: float
    throughput: float


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
    """Run every rank's calls in virtual time with the engine's own protocol; once more synchronously.

    Parameters
    ----------
    work
        Shape (ranks, calls), seconds of work before each call: see `pycollectives.simulation.workload`.
    policy
        Who may start a round.
    nbytes
        Bytes of one rank's data.
    algorithm, activation
        Names that the engine has.
    costs
        Of the machine.
    options
        More of the simulator's arguments, such as `late`, `max_staleness` or `delivery_seed`.
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
    """Return the mean over ranks of the time that each needed for a call and the work before it."""
    calls = np.bincount(simulated["rank"], minlength=ranks)
    last = np.zeros(ranks)
    np.maximum.at(last, simulated["rank"], simulated["done"])
    last[calls == 0] = simulated["done"].max()  # not done with its first: at least this long
    return float((last / np.maximum(calls, 1)).mean())


def elements_of(algorithm: str, ranks: int, nbytes: int) -> int:
    """Return with how many elements the plan of `nbytes` bytes is simulated: it has the same messages then.

    Raises
    ------
    ValueError
        There is no such algorithm, or it cuts the data into too many parts to simulate them on so many ranks.
    """
    from ..support.native import core

    count = min(core.parts_of_allreduce(algorithm, ranks), max(1, nbytes // 8))
    if count * ranks > MOST_ELEMENTS:
        raise ValueError(
            f"algorithm {algorithm!r} on {ranks} ranks: expected at most {MOST_ELEMENTS} elements of all ranks, got "
            f"{count} of each; simulate fewer ranks"
        )
    return count


def seconds_for_all(work: npt.NDArray[np.float64], policy: Policy, **options: Any) -> float:
    """Return the seconds until every rank has made its calls and flushed, where communication costs nothing.

    Parameters
    ----------
    work, policy, options
        As those of `simulate`.
    """
    columns = _columns(work, policy, "flush", nbytes=4, algorithm="recursive_doubling", costs=IDEAL, **options)
    return float(columns["done"].max())


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
    """Return what the simulator says of each call: `rank`, `call`, `called`, `done` (both in seconds), and more."""
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
