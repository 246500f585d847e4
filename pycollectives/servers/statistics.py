"""Reports of a parameter server: a push's outcome, a rank's counters, and the server's counters."""

from __future__ import annotations

from dataclasses import dataclass

from ..collective import Statistics


@dataclass(frozen=True)
class PushInfo:
    """Describes the outcome of a push.

    Attributes
    ----------
    clock
        The number of the push, from 1.
    version
        The number of updates that the weights had when the server released the worker.
    staleness
        The number of updates made between the weights that the worker used and its push.
    used
        True if the gradient is or will be part of an update; False if it was discarded.
    """

    clock: int
    version: int
    staleness: int
    used: bool


@dataclass(frozen=True, kw_only=True)
class ParameterServerStatistics(Statistics):
    """Counters of one rank; `ParameterServer.statistics` returns them.

    Attributes
    ----------
    pushes
        Pushes of this rank, including trials that it gave up.
    version
        Updates in the weights that this rank received last.
    """

    pushes: int
    version: int


@dataclass(frozen=True)
class WorkerStatistics:
    """The server's counters of one worker.

    Attributes
    ----------
    rank
        The worker's rank.
    pushes
        Gradients that have arrived.
    discarded
        Gradients that were discarded.
    given_up
        Trials that the worker gave up, and pushes without effect under nan="skip".
    waiting
        Seconds from the worker's pushes until the server released it.
    present
        Whether the worker takes part: False after `suspend` or `leave`, or if the server has removed it as missing.
    """

    rank: int
    pushes: int
    discarded: int
    given_up: int
    waiting: float
    present: bool


@dataclass(frozen=True)
class ServerStatistics:
    """The server's counters of all workers.

    Attributes
    ----------
    version
        Updates of the weights.
    workers
        One entry for each worker, in the order of ranks.
    staleness
        The numbers of pushes with a staleness of 0, 1, 2, ... updates. The last entry also counts larger values.
    superstep
        The number of barriers.
    supersteps
        For each of the last 256 barriers: seconds since the previous one, and the longest wait.
    """

    version: int
    workers: tuple[WorkerStatistics, ...]
    staleness: tuple[int, ...]
    superstep: int
    supersteps: tuple[tuple[float, float], ...]
