"""Compare all methods under recorded step times, in virtual time and at zero communication cost.

Each method runs with the engine's own protocol, or by its paper's recurrence, until the first rank would have made all
of its steps without waiting. In that time the fastest method makes as many steps as ranks that never wait, and the
synchronous one as many as the slowest rank of each step allows.
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

    from ..groups import GeneratedGroups
    from ..topology import TimeVarying, Topology

Work = npt.NDArray[np.float64]

WORTH = 1.1
"""Less speedup than this does not pay for data that is late."""
RESOLUTION = 0.03
"""Methods whose measured throughputs differ by less are not ranked."""
NEARLY = 0.95
"""The advised quorum is the largest with this part of the best quorum's speed."""


class Forecast(NamedTuple):
    """The forecast for a method."""

    method: str  # its name, with options as on a command line
    steps_per_s: float  # of all ranks together
    speedup: float  # over the synchronous method
    averaged: float  # mean number of ranks whose newest data a step combines; 1 at a server that applies each gradient
    # mean age of the data: rounds (of late data: one), steps, or updates; None: the method has none
    staleness: float | None


def forecasts(work: Work) -> list[Forecast]:
    """Return the forecasts of all methods, the fastest first.

    `work`: seconds of work of each step, without waiting: float64 of shape (ranks, steps). ValueError for another
    shape, fewer than two ranks, a negative or infinite time, a rank without work, or so few steps that one of the
    slowest rank takes longer than all of the fastest.
    """
    work = np.asarray(work, dtype=np.float64)
    if work.ndim != 2 or len(work) < 2 or work.shape[1] == 0 or not (np.isfinite(work).all() and (work >= 0).all()):
        raise ValueError(
            f"work: expected finite seconds >= 0 of shape (2 or more ranks, steps), got shape {work.shape}"
        )
    if not work.any(axis=1).all():
        raise ValueError("work: expected time > 0 of each rank, got a rank without work")
    synchronous, *_ = _synchronous(work)
    if not synchronous:
        raise ValueError(
            f"work: expected more steps: when the first rank has made its {work.shape[1]}, the slowest has made none"
        )
    found = []
    for name, simulate in _methods(len(work)).items():
        steps, averaged, staleness = simulate(work)
        found.append(Forecast(name, steps / _end(work), steps / synchronous, averaged, staleness))
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
        f'policy="{chosen.method}" is {chosen.speedup:.2f} times as fast as the synchronous method. A step has fresh '
        f"data of {chosen.averaged:.1f} of {ranks:.0f} ranks. The fastest, {best.method}, is {best.speedup:.2f} times "
        "as fast."
    )


def _quorum(method: str) -> policies.Quorum | None:
    """Return the policy of a quorum without a grace; None for other methods."""
    policy = policies.parse(method) if method.startswith("quorum:") else None
    return policy if isinstance(policy, policies.Quorum) and policy.grace == 0 else None


def _end(work: Work) -> float:
    """Return the time at which the first rank would have made all steps; rounding may not exclude the last one."""
    return float(work.sum(axis=1).min()) * (1 + 1e-9)


def _methods(ranks: int) -> dict[str, Callable[[Work], tuple[float, float, float | None]]]:
    """Return, for each method, a function that returns the steps of all ranks, and the other figures."""
    quorums = sorted({(ranks + 1) // 2, (3 * ranks + 3) // 4, ranks - 1} - {ranks})
    names = ["solo", "majority", *(f"quorum:{k}" for k in quorums), f"quorum:{(ranks + 1) // 2}:auto"]
    found: dict[str, Callable[[Work], tuple[float, float, float | None]]] = {"synchronous": _synchronous}
    for name in names:
        found[name] = partial(_partial_allreduce, policy=policies.parse(name))
    found["p-reduce smart"] = partial(_groups, generator=groups.SmartGroups(min(3, ranks)))
    found["d-psgd ring"] = partial(_neighbors, graph=topology.ring(ranks), is_late=1)
    found["sgp one-peer-exponential"] = partial(_neighbors, graph=topology.one_peer_exponential(ranks), is_late=0)
    found["ad-psgd"] = _ad_psgd
    for text in ("standard", "backup:1", "staleness:5"):
        found[f"hop ring {text}"] = partial(_hop, mode=modes.parse(text)[0])
    for text in ("bsp", "ssp:3", "elastic:15", "asp"):
        found[text] = partial(_server, kind=sync.parse(text))
    return found


def _count(ends: npt.NDArray[np.float64], work: Work) -> float:
    """Count the steps that end in time."""
    return float((ends <= _end(work)).sum())


def _synchronous(work: Work) -> tuple[float, float, float | None]:
    return len(work) * _count(work.max(axis=0).cumsum(), work), float(len(work)), 0.0


def _partial_allreduce(work: Work, policy: policies.Policy) -> tuple[float, float, float | None]:
    columns = step_columns(work, policy)
    in_time = columns["done"] <= _end(work)
    _, first = np.unique(columns["round"][in_time], return_index=True)
    active = columns["active"][in_time][first].mean()
    return float(in_time.sum()), float(active), float(columns["late"][in_time].mean())


def _groups(work: Work, generator: GeneratedGroups) -> tuple[float, float, float | None]:
    steps = work.shape[1]
    machine = machine_of(generator, len(work), len(work))
    model = GroupModel(machine, len(work), lambda worker, step: float(work[worker, step % steps]))
    model.run(until=_end(work))
    sizes = [len(group) for group in model.groups]
    return float(sum(each.steps for each in model.workers)), float(np.mean(sizes or [1])), None


def _ad_psgd(work: Work) -> tuple[float, float, float | None]:
    return _count(work.cumsum(axis=1), work), 2.0, None


def _neighbors(work: Work, graph: Topology | TimeVarying, *, is_late: int) -> tuple[float, float, float | None]:
    """Average with the in-neighbors' values of the same step, or of the step before while a rank computes."""
    ranks, steps = work.shape
    ends = np.zeros((ranks, steps + 1))
    degrees = []
    for step in range(steps):
        computed = ends[:, step] + work[:, step]
        sent = ends[:, step] if is_late else computed
        around = [graph.at(step).in_neighbors(rank) for rank in range(ranks)]
        ends[:, step + 1] = [max([computed[rank], *sent[list(peers)]]) for rank, peers in enumerate(around)]
        degrees.append(1 + np.mean([len(each) for each in around]))
    return _count(ends[:, 1:], work), float(np.mean(degrees)), float(is_late)


def _hop(work: Work, mode: modes.Mode) -> tuple[float, float, float | None]:
    graph = topology.ring(len(work))
    ends = times_of_steps(graph, mode, work)
    return _count(ends, work), float(1 + np.mean([len(graph.in_neighbors(r)) for r in range(len(work))])), None


def _server(work: Work, kind: sync.Synchronization) -> tuple[float, float, float | None]:
    found = history(kind, work)
    end = _end(work)
    released = sum(time <= end for time, *_ in entries_of(found, "release"))
    delays = [delay for time, _, _, _, delay, what in entries_of(found, "push") if time <= end and what == "used"]
    averaged = len(work) if isinstance(kind, sync.BSP) else 1
    return float(released), float(averaged), float(np.mean(delays)) if delays else None


def rank_correlation(forecast: Sequence[float], measured: Sequence[float], best: int = 5) -> float:
    """Return Kendall's tau of the best measured methods, over the pairs that the measurement tells apart; 1 if none.

    >>> rank_correlation([3.0, 2.0, 1.0], [30.0, 20.0, 10.0])
    1.0
    >>> rank_correlation([3.0, 1.0, 2.0], [30.0, 20.0, 10.0])
    0.3333333333333333
    """
    order = sorted(range(len(measured)), key=lambda method: -measured[method])[:best]
    pairs = [(a, b) for a, b in combinations(order, 2) if measured[a] > (1 + RESOLUTION) * measured[b]]
    signs = [np.sign(forecast[a] - forecast[b]) for a, b in pairs]
    return float(np.mean(signs)) if signs else 1.0
