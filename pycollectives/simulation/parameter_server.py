"""Simulate a parameter server in virtual time, for each kind of synchronization and given computing times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..servers.sync import EAMSGD

if TYPE_CHECKING:
    import numpy.typing as npt

    from ..servers.sync import Synchronization


class ServerSummary(NamedTuple):
    """Figures of a simulation, until the first worker has ended.

    Attributes
    ----------
    workers
        Number of workers.
    seconds
        Seconds until the first worker has ended.
    iterations_per_s
        Mean iterations per second of a worker.
    waiting_fraction
        Share of the workers' time, 0 to 1, in which they wait for permission to continue.
    staleness_mean
        Mean number of updates between the weights on which a used gradient was computed and its arrival.
    staleness_max
        Maximum number of such updates.
    updates
        Number of updates of the weights.
    discarded_fraction
        Share of the iterations, 0 to 1, whose gradients were discarded or given up.
    supersteps
        Number of supersteps, which end with a barrier.
    superstep_s_mean
        Mean length of a superstep in seconds; 0 without supersteps.
    slack_s_mean
        Mean wait of a superstep's first worker at its end, in seconds; 0 without supersteps.
    """

    workers: int
    seconds: float
    iterations_per_s: float
    waiting_fraction: float
    staleness_mean: float
    staleness_max: int
    updates: int
    discarded_fraction: float
    supersteps: int
    superstep_s_mean: float
    slack_s_mean: float


def simulate(sync: Synchronization, work: npt.NDArray[np.float64], *, latency: float = 0.0) -> ServerSummary:
    """Run the engine's own policies in virtual time, and return the speeds, waits and staleness.

    Parameters
    ----------
    sync
        As in `Communicator.parameter_server`.
    work
        Computing time in seconds, float64 of shape (workers, iterations), not negative and not all 0.
    latency
        Duration of a message in seconds; an iteration has two messages.

    Raises
    ------
    ValueError
        `work` or `latency` is invalid.
    RuntimeError
        Workers deadlock.
    """
    work = np.asarray(work, dtype=np.float64)
    if work.ndim != 2 or work.size == 0 or not (np.isfinite(work).all() and (work >= 0).all() and work.any()):
        raise ValueError(f"work: expected finite seconds >= 0 of shape (workers, iterations), got shape {work.shape}")
    if not latency >= 0:
        raise ValueError(f"latency: expected seconds >= 0, got {latency}")
    period = _period(sync)
    before, _ = _before_pushes(work, period)
    if before.size == 0:
        raise ValueError(f"{sync!r}: expected at least {period} iterations, got {work.shape[1]}")
    return _summary(history(sync, before, latency=latency), len(before), before.shape[1], period)


def seconds_for_all(work: npt.NDArray[np.float64], sync: Synchronization, **script: Any) -> float:
    """Return the seconds until every worker has made its iterations, at zero communication cost.

    `script`: further actions of workers, as in `history`.
    """
    before, ends = _before_pushes(work, _period(sync))
    if before.size:
        released = {worker: time for time, worker, *_ in entries_of(history(sync, before, **script), "release")}
        ends = ends + [released[worker] for worker in range(len(ends))]
    return float(ends.max())


def _period(sync: Synchronization) -> int:
    """Return the number of iterations between two pushes."""
    return sync.period if isinstance(sync, EAMSGD) else 1


def _before_pushes(
    work: npt.NDArray[np.float64], period: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the computing time before each push, and each worker's computing time after its last push."""
    workers, iterations = work.shape
    pushes = iterations // period
    before = work[:, : pushes * period].reshape(workers, pushes, period).sum(axis=2)
    return before, work[:, pushes * period :].sum(axis=1)


def history(sync: Synchronization, work: npt.NDArray[np.float64], **script: Any) -> dict[str, Any]:
    """Return all events of a simulation; see csrc/simulation/parameter_server_simulation.h."""
    from ..support.native import core

    workers, pushes = work.shape
    defaults: dict[str, Any] = {
        "values": [1.0] * work.size,
        "slope": 0.0,
        "pushes": [pushes] * workers,
        "vanishes": [pushes] * workers,
        "absences": [],
        "gives_up": True,
        "latency": 0.0,
        "max_events": 100 * (work.size + workers),
    }
    found = core.simulate_server(
        sync=sync.engine_arguments(),
        workers=workers,
        max_pushes=pushes,
        work=work.ravel().tolist(),
        **{**defaults, **script},
    )
    if found["stuck"]:
        raise RuntimeError(f"{sync!r}: workers {found['stuck']} wait indefinitely")
    return found


def _summary(found: dict[str, Any], workers: int, pushes: int, period: int) -> ServerSummary:
    releases = entries_of(found, "release")
    seconds = min(time for time, _, clock, _ in releases if clock == pushes)
    made = [each for each in entries_of(found, "push") if each[0] <= seconds]
    delays = [delay for _, _, _, _, delay, what in made if what == "used"]
    supersteps = [each for each in entries_of(found, "superstep") if each[0] <= seconds]
    waited = sum(max(min(time, seconds) - (time - waited), 0) for time, _, _, waited in releases)
    return ServerSummary(
        workers=workers,
        seconds=seconds,
        iterations_per_s=len(made) * period / workers / seconds,
        waiting_fraction=waited / (workers * seconds),
        staleness_mean=float(np.mean(delays)) if delays else 0.0,
        staleness_max=max(delays, default=0),
        updates=sum(time <= seconds for time, _, _ in entries_of(found, "update")),
        discarded_fraction=1 - len(delays) / len(made),
        supersteps=len(supersteps),
        superstep_s_mean=float(np.mean([length for _, length, *_ in supersteps])) if supersteps else 0.0,
        slack_s_mean=float(np.mean([slack for _, _, slack, *_ in supersteps])) if supersteps else 0.0,
    )


def entries_of(found: dict[str, Any], kind: str) -> list[tuple[Any, ...]]:
    """Return the entries of one kind from a history, without the kind."""
    return [entry[1:] for entry in found["entries"] if entry[0] == kind]
