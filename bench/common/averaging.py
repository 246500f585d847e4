"""Workers that compute and average their weights with MPI_Allreduce or in groups, behind the same interface."""

from __future__ import annotations

import contextlib
import gc
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from mpi4py import MPI

import pycollectives as pc

from .arrays import HOST
from .audit import Sync, SyncHistory, audit_syncs
from .cli import RunError
from .errors import require_none
from .patterns import Model
from .policies import meets_after, reports_every_group
from .timing import SleepingBarrier, Timeline, Window

if TYPE_CHECKING:
    from .arrays import Arrays
    from .policies import Generator


class Answer(Protocol):
    """The information that a synchronization returns."""

    @property
    def group(self) -> tuple[int, ...]: ...
    @property
    def sequence(self) -> int: ...
    @property
    def waited(self) -> float: ...
    @property
    def conflicts(self) -> int: ...


class Averaging(Protocol):
    model: Model

    def open(self) -> None:
        """Collective."""

    def synchronise(self, step: int, over: bool) -> Answer | None:
        """Average the weights with other workers; None if all took part. `over`: whether this worker's time is over."""

    def goes_on(self, over: bool) -> bool:
        """Whether the worker makes another iteration. `over`: its time is over."""

    def close(self) -> None:
        """Leave; return when no worker needs this one anymore."""


class AllreduceAveraging:
    """MPI_Allreduce in place and a division.

    All workers must end after the same iteration. One more number therefore goes with the weights: the number of
    workers whose time is over.
    """

    def __init__(self, comm: MPI.Comm, count: int) -> None:
        self._comm = comm
        self.model = Model(count, comm.rank, extra=1)
        self._message = [self.model.buffer, count + 1, MPI.FLOAT]
        self._ended = False

    def open(self) -> None:
        self._ended = False

    def synchronise(self, step: int, over: bool) -> Answer | None:
        del step
        buffer = self.model.buffer
        buffer[-1] = over
        self._comm.Allreduce(MPI.IN_PLACE, self._message)
        np.divide(buffer, np.float32(self._comm.size), out=buffer)
        self._ended = bool(buffer[-1] > 0)
        return None

    def goes_on(self, over: bool) -> bool:
        del over
        return not self._ended

    def close(self) -> None:
        pass


class GroupAveraging:
    """A P-Reduce in the group that a generator chooses."""

    def __init__(
        self,
        comm: MPI.Comm,
        count: int,
        generator: Generator,
        ranks_per_node: int | None,
        arrays: Arrays = HOST,
    ) -> None:
        self._comm = comm
        self._generator = generator
        self._ranks_per_node = ranks_per_node
        self.model = Model(count, comm.rank, arrays=arrays)
        self._open = contextlib.ExitStack()

    def open(self) -> None:
        communicator = self._open.enter_context(pc.Communicator(self._comm, ranks_per_node=self._ranks_per_node))
        try:
            collective = communicator.partial_reduce(self.model.weights, groups=self._generator, op=pc.AVG)
        except ValueError as error:  # raised on every rank, since the arguments are the same
            self._open.close()
            raise RunError(str(error)) from error
        self._collective = self._open.enter_context(collective)

    def synchronise(self, step: int, over: bool) -> Answer | None:
        del over
        answer: Answer = self._collective.average(self.model.weights, step)
        return answer

    def goes_on(self, over: bool) -> bool:
        return not over

    def close(self) -> None:
        self._open.close()


@dataclass(frozen=True)
class Run:
    """The measurements of all workers, by rank."""

    timelines: list[Timeline]
    histories: list[SyncHistory]


def run_workers(comm: MPI.Comm, averaging: Averaging, *, compute: float, window: Window) -> Run | None:
    """Run the workers; collective. None on all ranks but 0. `compute`: this worker's sleep per iteration (s)."""
    barrier = SleepingBarrier(comm)
    everybody = tuple(range(comm.size))
    begins: list[float] = []
    ends: list[float] = []
    history = SyncHistory()
    clock, sleep, model = time.perf_counter, time.sleep, averaging.model
    averaging.open()
    gc.collect()
    gc.disable()
    try:
        before = model.sampled_value()
        barrier.wait()
        start = clock()
        while True:
            sleep(compute)
            begin = clock() - start
            answer = averaging.synchronise(len(begins), begin >= window.end)
            end = clock() - start
            begins.append(begin)
            ends.append(end)
            after = model.sampled_value()
            if answer is None:
                history.syncs.append(Sync(len(history.syncs), everybody, before, after))
            else:
                history.syncs.append(
                    Sync(answer.sequence, answer.group, before, after, answer.conflicts, answer.waited)
                )
            before = after
            if not averaging.goes_on(end >= window.end):
                break
    finally:
        gc.enable()
    averaging.close()
    history.final = model.value()
    barrier.wait()
    everything = comm.gather((Timeline(np.array(begins), np.array(ends)), history))
    if everything is None:
        return None
    return Run([timeline for timeline, _ in everything], [history for _, history in everything])


def verify(comm: MPI.Comm, name: str, run: Run | None, *, anybody_slow: bool) -> None:
    """Raise RunError on every rank if a synchronization was wrong; collective."""
    findings = None
    if run is not None:
        met = meets_after(name, ranks=comm.size, anybody_slow=anybody_slow)
        findings = audit_syncs(run.histories, every_group=reports_every_group(name), meets_after=met)
    require_none(comm, name, findings)
