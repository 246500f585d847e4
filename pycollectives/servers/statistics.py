"""What a parameter server says: of a push, of a rank, and of what the server has counted."""

from __future__ import annotations

from dataclasses import dataclass

from ..collective import Statistics

__all__ = ["ParameterServerStatistics", "PushInfo", "ServerStatistics", "WorkerStatistics"]


@dataclass(frozen=True)
class PushInfo:
    """How a push came out.

    Attributes
    ----------
    clock
        The number of the push, from 1.
    version
        Updates of the weights when the worker was let go.
    staleness
        Updates between the weights that the worker had and its push.
    used
        Whether the gradient has its part in an update, or will have; else it was discarded.
    """

    clock: int
    version: int
    staleness: int
    used: bool


@dataclass(frozen=True, kw_only=True)
class ParameterServerStatistics(Statistics):
    """What `ParameterServer.statistics` says of one rank.

    Attributes
    ----------
    pushes
        Its own, those that were given up included.
    version
        Updates in the weights that it has been given last.
    """

    pushes: int
    version: int


@dataclass(frozen=True)
class WorkerStatistics:
    """What a worker has done, as the server has counted it.

    Attributes
    ----------
    rank
        Which.
    pushes
        Gradients that have come.
    discarded
        Of them.
    given_up
        Trials that it has given up, and pushes without effect under nan="skip".
    waiting
        Seconds from its pushes until it was let go.
    present
        Whether it takes part: not after `suspend` or `leave`, nor if it has been taken out as missing.
    """

    rank: int
    pushes: int
    discarded: int
    given_up: int
    waiting: float
    present: bool


@dataclass(frozen=True)
class ServerStatistics:
    """What the server has counted, of all workers.

    Attributes
    ----------
    version
        Updates of the weights.
    workers
        One entry for each worker, by rank.
    staleness
        Pushes by their staleness: of 0, 1, 2, ... updates. The last entry counts all that are as old or older.
    superstep
        Barriers.
    supersteps
        Of the last 256: seconds from the barrier before, and the longest wait for it.
    """

    version: int
    workers: tuple[WorkerStatistics, ...]
    staleness: tuple[int, ...]
    superstep: int
    supersteps: tuple[tuple[float, float], ...]
