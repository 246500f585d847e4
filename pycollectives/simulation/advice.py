"""Compare all methods under recorded step times, in virtual time and at zero communication cost.

Each method runs with the engine's own protocol, or by its paper's recurrence. A run ends when the first rank would have
made all of its steps without waiting. In that time the fastest possible method makes as many steps as ranks that never
wait, and the synchronous method makes as many as the slowest rank of each step allows.
"""

from __future__ import annotations

from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from .. import groups, policies, topology
from ..hop import modes
from ..servers import sync
from .allreduce import step_columns
from .groups import GroupModel, machine_of
from .hop import times_of_steps
from .parameter_server import entries_of, history

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..topology import TimeVarying, Topology

Work = npt.NDArray[np.float64]

WORTH = 1.1
"""The smallest speedup that is worth late data."""
RESOLUTION = 0.03
"""Methods whose measured throughputs differ by less than this are not ranked."""
NEARLY = 0.95
"""The advised quorum is the largest one with this share of the best quorum's speed."""
AT_PACE = 6.0
"""The most copies of its data that a partial allreduce allocates per rank if ranks keep pace (docs/semantics.md)."""
BEHIND = 36.0
"""The same if a rank falls behind, with the default `history`."""
MAX_IG = 5
"""Hop's default."""


class Forecast(NamedTuple):
    """The forecast for a method."""

    method: str  # its name, with options as on a command line
    steps_per_s: float  # of all ranks together
    speedup: float  # over the synchronous method
    averaged: float  # mean number of ranks whose newest data a step combines; 1 at a server that applies each gradient
    # mean age of the data: rounds (of late data: one), steps, or updates; None: data has no age
    staleness: float | None
    # bytes that the library allocates on a rank for each byte of a large model, at most, with all ranks on one node
    memory: float


class Found(NamedTuple):
    """The result of a simulation, with fields as in `Forecast`."""

    steps: float  # of all ranks; a step with a discarded gradient does not count
    averaged: float
    staleness: float | None
    memory: float


def forecasts(work: Work) -> list[Forecast]:
    """Return the forecasts of all methods, the fastest first.

    `work`: seconds of work of each step, without waiting: float64 of shape (ranks, steps). ValueError for another
    shape, fewer than two ranks, a negative or infinite time, a rank without work, or so few steps that one step of the
    slowest rank takes longer than all steps of the fastest.
    """
    work = np.asarray(work, dtype=np.float64)
    if work.ndim != 2 or len(work) < 2 or work.shape[1] == 0 or not (np.isfinite(work).all() and (work >= 0).all()):
        raise ValueError(
            f"work: expected finite seconds >= 0 of shape (2 or more ranks, steps), got shape {work.shape}"
        )
    if not work.any(axis=1).all():
        raise ValueError("work: expected time > 0 for each rank, got a rank without work")
    synchronous = _synchronous(work).steps
    if not synchronous:
        raise ValueError(
            f"work: expected more steps: the fastest rank makes all {work.shape[1]} before the slowest makes one"
        )
    found = []
    for name, simulate in _methods(len(work)).items():
        of = simulate(work)
        rest = (of.averaged, of.staleness, of.memory)
        found.append(Forecast(name, of.steps / _end(work), of.steps / synchronous, *rest))
    return sorted(found, key=lambda each: -each.steps_per_s)


def advice(found: list[Forecast]) -> str:
    """Return advice from forecasts, in words."""
    best, ranks = found[0], next(each.averaged for each in found if each.method == "synchronous")
    if best.speedup < WORTH:
        return (
            f"Stay synchronous: ranks wait {1 - 1 / best.speedup:.0%} of the time, and no method is more than "
            f"{best.speedup:.2f} times as fast."
        )
    quorums = {policy.k: each for each in found if (policy := _quorum(each.method))}
    fastest = max(each.speedup for each in quorums.values())
    if fastest < WORTH:
        return (
            f"No quorum is more than {fastest:.2f} times as fast as the synchronous method. {best.method} is "
            f"{best.speedup:.2f} times as fast."
        )
    chosen = quorums[max(k for k, each in quorums.items() if k and each.speedup >= NEARLY * fastest)]
    return (
        f'policy="{chosen.method}" is {chosen.speedup:.2f} times as fast as the synchronous method. A step uses fresh '
        f"data from {chosen.averaged:.1f} of {ranks:.0f} ranks. The fastest, {best.method}, is "
        f"{best.speedup:.2f} times as fast."
    )


def _quorum(method: str) -> policies.Quorum | None:
    """Return the policy of a method that is a quorum without grace time, otherwise None."""
    policy = policies.parse(method) if method.startswith("quorum:") else None
    return policy if isinstance(policy, policies.Quorum) and policy.grace == 0 else None


def _end(work: Work) -> float:
    """Return the time at which the fastest rank ends without waiting, plus a margin for rounding errors."""
    return float(work.sum(axis=1).min()) * (1 + 1e-9)


def _methods(ranks: int) -> dict[str, Callable[[Work], Found]]:
    """Return, for each method, a function that simulates it."""
    quorums = sorted({(ranks + 1) // 2, (3 * ranks + 3) // 4, ranks - 1} - {ranks})
    names = ["solo", "majority", "any-of:2", "all-of:2", *(f"quorum:{k}" for k in quorums)]
    found: dict[str, Callable[[Work], Found]] = {"synchronous": _synchronous}
    for name in [*names, f"quorum:{(ranks + 1) // 2}:auto"]:
        found[name] = partial(_partial_allreduce, policy=policies.parse(name))
    for name in ("smart", "punctual", "random", f"static:{ranks}"):
        found[f"p-reduce {name.partition(':')[0]}"] = partial(_groups, generator=groups.as_groups(name, ranks))
    found["d-psgd ring"] = partial(_neighbors, graph=topology.ring(ranks), is_late=1)
    found["sgp one-peer-exponential"] = partial(_neighbors, graph=topology.one_peer_exponential(ranks), is_late=0)
    found["ad-psgd"] = partial(_in_pairs, memory=1.0)
    found["a2cid2"] = partial(_in_pairs, memory=2.0)  # the model and its momentum
    for text in ("standard", "notify-ack", "backup:1", "staleness:5", "hybrid:1:5", "skip:10"):
        found[f"hop ring {text}"] = partial(_hop, mode=text)
    servers = ("bsp", "ssp:3", "dssp:3:15", "elastic:15", "asp", f"ringmaster:{2 * ranks}", f"rennala:{ranks}")
    for text in (*servers, "ringleader", "rescaled"):
        found[text] = partial(_server, kind=sync.parse(text))
    return found


def _count(ends: npt.NDArray[np.float64], work: Work) -> float:
    """Count the steps that end within the simulated time."""
    return float((ends <= _end(work)).sum())


def _synchronous(work: Work) -> Found:
    return Found(len(work) * _count(work.max(axis=0).cumsum(), work), float(len(work)), 0.0, AT_PACE)


def _partial_allreduce(work: Work, policy: policies.Policy) -> Found:
    columns = step_columns(work, policy)
    in_time = columns["done"] <= _end(work)
    _, first = np.unique(columns["round"][in_time], return_index=True)
    active = columns["active"][in_time][first].mean()
    late = columns["late"][in_time]
    return Found(float(in_time.sum()), float(active), float(late.mean()), BEHIND if late.any() else AT_PACE)


def _groups(work: Work, generator: groups.AnyGroups) -> Found:
    steps = work.shape[1]
    machine = machine_of(generator, len(work), len(work))
    model = GroupModel(machine, len(work), lambda worker, step: float(work[worker, step % steps]))
    model.run(until=_end(work))
    sizes = [len(group) for group in model.groups]
    # Within a node values pass through slots of 512 KiB.
    return Found(float(sum(each.steps for each in model.workers)), float(np.mean(sizes or [1])), None, 0.0)


def _in_pairs(work: Work, memory: float) -> Found:
    return Found(_count(work.cumsum(axis=1), work), 2.0, None, memory)


def _neighbors(work: Work, graph: Topology | TimeVarying, *, is_late: int) -> Found:
    """Average with the in-neighbors' values of the same step, or, if `is_late`, of the previous step."""
    ranks, steps = work.shape
    ends = np.zeros((ranks, steps + 1))
    degrees = []
    for step in range(steps):
        computed = ends[:, step] + work[:, step]
        sent = ends[:, step] if is_late else computed
        around = [graph.at(step).in_neighbors(rank) for rank in range(ranks)]
        ends[:, step + 1] = [max([computed[rank], *sent[list(peers)]]) for rank, peers in enumerate(around)]
        degrees.append(1 + np.mean([len(each) for each in around]))
    # Two buffers that neighbors read, and the result.
    return Found(_count(ends[:, 1:], work), float(np.mean(degrees)), float(is_late), 3.0)


def _hop(work: Work, mode: str) -> Found:
    graph = topology.ring(len(work))
    ends = times_of_steps(graph, *modes.parse(mode), work, max_ig=MAX_IG)
    degree = float(np.mean([len(graph.in_neighbors(rank)) for rank in range(len(work))]))
    return Found(_count(ends, work), 1 + degree, None, (1 + MAX_IG) * degree)  # the queue of each in-neighbor


def _server(work: Work, kind: sync.Synchronization) -> Found:
    found = history(kind, work)
    end = _end(work)
    pushes = [(delay, what == "used") for time, _, _, _, delay, what in entries_of(found, "push") if time <= end]
    delays = [delay for delay, is_used in pushes if is_used]
    released = sum(time <= end for time, *_ in entries_of(found, "release"))
    averages = isinstance(kind, sync.BSP | sync.Ringleader)
    averaged = len(work) if averages else kind.batch if isinstance(kind, sync.Rennala) else 1
    # A rank's share of the weights, its slot and its two accumulators, with `servers="node"` and plain SGD.
    memory = 3 + 1 / len(work)
    staleness = float(np.mean(delays)) if delays else None
    return Found(float(released - len(pushes) + len(delays)), float(averaged), staleness, memory)


def rank_correlation(forecast: Sequence[float], measured: Sequence[float], best: int = 5) -> float:
    """Return Kendall's tau over the pairs of best methods that the measurement distinguishes; 1 without such pairs.

    >>> rank_correlation([3.0, 2.0, 1.0], [30.0, 20.0, 10.0])
    1.0
    >>> rank_correlation([3.0, 1.0, 2.0], [30.0, 20.0, 10.0])
    0.3333333333333333
    """
    order = sorted(range(len(measured)), key=lambda method: -measured[method])[:best]
    pairs = [(a, b) for a, b in combinations(order, 2) if measured[a] > (1 + RESOLUTION) * measured[b]]
    signs = [np.sign(forecast[a] - forecast[b]) for a, b in pairs]
    return float(np.mean(signs)) if signs else 1.0
