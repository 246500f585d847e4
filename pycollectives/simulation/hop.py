"""Simulate Hop's modes in virtual time for given computing times, at zero communication cost."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from ..hop.gaps import gap_bounds
from ..topology.names import by_name
from ..topology.time_varying import TimeVarying

if TYPE_CHECKING:
    import numpy.typing as npt

    from ..hop.modes import Mode, Skip
    from ..topology.graph import Topology

Computation = Literal["parallel", "serial"]


class HopSummary(NamedTuple):
    """Statistics of a simulation."""

    iterations_per_s: float  # with skipped ones, over the time in which a rank completes them, averaged over ranks
    max_gap: int  # the largest lead of a rank over another one, in iterations
    skipped: int  # iterations of all ranks


def simulate_hop(
    topology: Topology,
    mode: Mode,
    work: npt.NDArray[np.float64],
    *,
    max_ig: int = 5,
    skip: Skip | None = None,
    computation: Computation = "parallel",
) -> HopSummary:
    """Run the engine's own protocol in virtual time, with messages that take no time. RuntimeError if ranks deadlock.

    `work`: computing time in seconds, float64 of shape (size, iterations). Other arguments as in `Communicator.hop`.
    """
    history = _history(topology, mode, work, max_ig, skip, computation)
    entered = [(time, rank, iteration) for what, rank, iteration, time, *_ in history["entries"] if what == "entered"]
    skipped = sum(each["skipped"] for each in history["ranks"])
    size, iterations = work.shape
    return HopSummary(iterations / float(np.mean(_ends(history, size))), largest_gap(entered, size), skipped)


def seconds_for_all(
    work: npt.NDArray[np.float64],
    *,
    topology: str,
    mode: Mode,
    max_ig: int,
    skip: Skip | None,
    computation: Computation = "parallel",
) -> float:
    """Return the seconds until every rank has made its iterations, at zero communication cost, as in `simulate_hop`."""
    size = len(work)
    graph = by_name(topology, size)
    if isinstance(graph, TimeVarying):
        raise TypeError(f"topology: expected a graph that does not vary in time, got {topology}")
    return max(_ends(_history(graph, mode, work, max_ig, skip, computation), size))


def times_of_steps(
    topology: Topology, mode: Mode, skip: Skip | None, work: npt.NDArray[np.float64], *, max_ig: int
) -> npt.NDArray[np.float64]:
    """Return the time at which each rank completes each iteration, shaped like `work`; `inf` if skipped."""
    ends = np.full(work.shape, np.inf)
    for what, rank, iteration, time, *_ in _history(topology, mode, work, max_ig, skip, "parallel")["entries"]:
        if what == "stepped":
            ends[rank, iteration] = time
    return ends


def _history(
    topology: Topology,
    mode: Mode,
    work: npt.NDArray[np.float64],
    max_ig: int,
    skip: Skip | None,
    computation: Computation,
) -> dict[str, Any]:
    from ..support.native import core

    size, iterations = work.shape
    ranks = range(size)
    history = core.simulate_hop(
        size=size,
        ranks_per_node=size,
        count=1,
        max_ig=max_ig,
        **mode.engine_arguments(size),
        skip=None if skip is None else (skip.max_jump, skip.trigger),
        serial=computation == "serial",
        **{"in": [topology.in_neighbors(r) for r in ranks], "out": [topology.out_neighbors(r) for r in ranks]},
        max_iterations=iterations,
        work=work.ravel().tolist(),
        iterations=[iterations] * size,
        stops=[None] * size,
        initial=[0.0] * size,
        deltas=[0.0] * size,
        bounds=gap_bounds(topology, mode, max_ig).ravel().tolist(),
        leaves=True,
        latency=0.0,
        jitter=0.0,
        delivery_seed=0,
        max_events=1 << 40,
    )
    if history["stuck"] or history["violation"]:
        raise RuntimeError(history["violation"] or f"ranks {history['stuck']} wait indefinitely")
    return history


def _ends(history: dict[str, Any], size: int) -> list[float]:
    """Return the time at which each rank completes its last iteration."""
    ends = [0.0] * size
    for what, rank, _, time, *_ in history["entries"]:
        if what == "stepped":
            ends[rank] = max(ends[rank], time)
    return ends


def largest_gap(entered: list[tuple[float, int, int]], size: int) -> int:
    """Return a rank's largest lead over another in iterations, whose starts are given as (time, rank, iteration)."""
    at = [0] * size
    gap = 0
    for _, rank, iteration in sorted(entered, key=itemgetter(0)):  # at the same time, in the order given
        at[rank] = iteration
        gap = max(gap, iteration - min(at))
    return gap
