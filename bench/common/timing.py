"""Times collectives in turns, under given delays: barriers, blocks of calls, CPU time, and time lines of workers."""

from __future__ import annotations

import gc
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from .warmup import WINDOW, is_stationary

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mpi4py import MPI

    from .subjects import Subject

Floats = NDArray[np.float64]

# --- Barriers between timed regions -----------------------------------------------------------------------------------

FIRST_NAP = 50e-6
LONGEST_NAP = 400e-6  # with which ranks come out of the barrier apart; small against a skew of milliseconds


class Barrier(Protocol):
    def wait(self, rest_until: float = 0.0) -> None:
        """Returns when every rank has called. Nobody else can be there before `rest_until` (time.perf_counter)."""


class SleepingBarrier:
    """Naps instead of spinning, so that ranks that are done leave the cores to those still in their timed call."""

    def __init__(self, comm: MPI.Comm) -> None:
        self._comm = comm

    def wait(self, rest_until: float = 0.0) -> None:
        request = self._comm.Ibarrier()
        rest = rest_until - time.perf_counter()
        if rest > 0:
            time.sleep(rest)
        nap = FIRST_NAP
        while not request.Test():
            time.sleep(nap)
            nap = min(2 * nap, LONGEST_NAP)


class TightBarrier:
    """MPI_Barrier: lets the ranks go as close together as MPI can. For balanced runs."""

    def __init__(self, comm: MPI.Comm) -> None:
        self._comm = comm

    def wait(self, rest_until: float = 0.0) -> None:
        del rest_until  # nobody is late in a balanced run
        self._comm.Barrier()


# --- Blocks of calls --------------------------------------------------------------------------------------------------

BLOCKS = 4


@dataclass(frozen=True)
class Procedure:
    """How the calls of a cell are made: in blocks, each with a warm-up, under given delays."""

    barrier: Barrier
    delays: Floats  # (calls, ranks) seconds, warm-up calls included
    inject: Callable[[float], None]
    iterations: int
    warmup: int  # of each block
    until_stationary: bool = False  # the warm-up may end before that (warmup.py)

    def blocks(self) -> list[int]:
        """Counted calls of each block."""
        return block_sizes(self.iterations)


def block_sizes(iterations: int) -> list[int]:
    blocks = min(BLOCKS, iterations)
    return [iterations // blocks + (block < iterations % blocks) for block in range(blocks)]


def calls_of(iterations: int, warmup: int) -> int:
    """Calls of a cell with its warm-up."""
    return iterations + warmup * len(block_sizes(iterations))


@dataclass(frozen=True)
class Samples:
    """(ranks, iterations) seconds, on rank 0; `arrivals` count from an instant that all ranks share."""

    arrivals: Floats
    latencies: Floats
    warmups: tuple[int, ...] = ()  # calls of each block's
    stationary: bool = True  # none of them ended only because it was long enough


@dataclass(frozen=True)
class Block:
    """One rank's, of one subject."""

    times: Floats  # (counted calls, 3) seconds: end of the barrier, arrival, latency
    warmup: int  # calls before them
    stationary: bool


def measure(comm: MPI.Comm, subjects: Sequence[Subject], procedure: Procedure) -> list[Samples]:
    """Collective. One Samples per subject, meaningful on rank 0.

    Subjects take turns, a block of each under the same delays, so that noise meets all of them.

    Clocks of several machines do not agree, so there an arrival counts from the end of the rank's own barrier.
    """
    one_machine = _on_one_machine(comm)
    rows: list[list[Block]] = [[] for _ in subjects]
    first = 0
    for block, counted in enumerate(procedure.blocks()):
        delays = procedure.delays[first : first + procedure.warmup + counted]
        first += len(delays)
        turn = list(zip(subjects, rows, strict=True))
        for subject, taken in turn if block % 2 == 0 else reversed(turn):
            taken.append(_run_block(comm, subject, block, delays, procedure))
    return [_gather(comm, taken, one_machine) for taken in rows]


def _run_block(comm: MPI.Comm, subject: Subject, block: int, delays: Floats, procedure: Procedure) -> Block:
    """`delays`: those of the warm-up first, of which some may not be needed."""
    clock, barrier = time.perf_counter, procedure.barrier
    times: list[tuple[float, float, float]] = []
    timed = subject.open(block, len(delays))

    def run(delay: Floats) -> None:
        call = len(times)
        subject.prepare(call)
        own, longest = float(delay[comm.rank]), float(delay.max())
        barrier.wait()
        released = clock()
        procedure.inject(own)
        arrival = clock()
        answer = timed()
        end = clock()
        barrier.wait(rest_until=released + longest)  # nobody checks while another is still in its timed call
        subject.check(call, answer)
        times.append((released, arrival, end - arrival))

    gc.collect()
    gc.disable()
    try:
        stationary = not procedure.until_stationary
        for delay in delays[: procedure.warmup]:
            run(delay)
            if procedure.until_stationary and len(times) % WINDOW == 0:
                stationary = _agree_that_stationary(comm, [latency for _, _, latency in times])
                if stationary:
                    break
        warmup = len(times)
        for delay in delays[procedure.warmup :]:
            run(delay)
    finally:
        gc.enable()
    subject.close()
    return Block(np.array(times[warmup:]), warmup, stationary)


def _agree_that_stationary(comm: MPI.Comm, latencies: list[float]) -> bool:
    """Rank 0 decides: sums need not have the same bits on all ranks."""
    total = comm.reduce(np.array(latencies))
    return bool(comm.bcast(total is not None and is_stationary(total / comm.size)))


def _gather(comm: MPI.Comm, blocks: list[Block], one_machine: bool) -> Samples:
    everything = comm.gather(np.concatenate([block.times for block in blocks]))
    warmups = tuple(block.warmup for block in blocks)
    stationary = all(block.stationary for block in blocks)
    if everything is None:
        return Samples(np.empty((0, 0)), np.empty((0, 0)), warmups, stationary)
    released, arrivals, latencies = np.moveaxis(np.stack(everything), 2, 0)
    return Samples(arrivals if one_machine else arrivals - released, latencies, warmups, stationary)


def _on_one_machine(comm: MPI.Comm) -> bool:
    """time.perf_counter is CLOCK_MONOTONIC, which the processes of one machine share (MPI_Wtime need not be)."""
    from mpi4py import MPI  # starts MPI, which the rest of this module does not need

    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    alone = node.size == comm.size
    node.Free()
    return bool(alone)


# --- CPU time of this process's threads, from /proc (Linux) -----------------------------------------------------------

TASKS = Path("/proc/self/task")


def thread_ids() -> set[int]:
    return {int(name) for name in os.listdir(TASKS)}


def cpu_seconds(threads: set[int]) -> float:
    """Of those threads of `threads` that are alive."""
    return sum(_cpu_seconds(thread) for thread in threads)


def _cpu_seconds(thread: int) -> float:
    folder = TASKS / str(thread)
    try:
        return int((folder / "schedstat").read_text().split()[0]) * 1e-9  # nanoseconds
    except (FileNotFoundError, ProcessLookupError):  # the thread is gone, or the kernel keeps no schedstat
        pass
    try:
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    user, system = int(fields[11]), int(fields[12])  # fields 14 and 15 of proc(5); two stand before the ')'
    return (user + system) / os.sysconf("SC_CLK_TCK")


# --- When a worker computed and when it synchronised ------------------------------------------------------------------


@dataclass(frozen=True)
class Window:
    """The time that is measured, in seconds since the start of all workers.

    Workers make different numbers of iterations, and none waits for others at the end. So all run until a common
    deadline, each finishes the iteration that spans it, and figures are of the window before it, in which everybody is
    running. The iterations that span the ends of the window count by the part that lies in it: otherwise a worker
    with few of them would be measured too slow by up to one of them.
    """

    begin: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin


@dataclass(frozen=True)
class Timeline:
    """One worker's iterations; seconds since the start of all workers.

    An iteration lasts from the end of the one before to the end of its synchronisation.
    """

    begins: Floats  # of its synchronisations
    ends: Floats

    def iterations_at(self, instant: float) -> float:
        """How many were done, the unfinished one by the part of its time that is over."""
        return float(np.interp(instant, np.concatenate([[0.0], self.ends]), np.arange(len(self.ends) + 1.0)))

    def iterations_per_s(self, window: Window) -> float:
        return (self.iterations_at(window.end) - self.iterations_at(window.begin)) / window.seconds

    def sync_fraction(self, window: Window) -> float:
        """The share of the window in which it synchronises: waits for its group and averages."""
        begins = np.clip(self.begins, window.begin, window.end)
        ends = np.clip(self.ends, window.begin, window.end)
        return float((ends - begins).sum() / window.seconds)

    def within(self, window: Window) -> NDArray[np.bool_]:
        """The iterations that ended in the window; if none did, all."""
        ended = (self.ends > window.begin) & (self.ends <= window.end)
        return ended if ended.any() else np.ones(len(self.ends), np.bool_)

    def latencies(self, window: Window) -> Floats:
        """Seconds of the synchronisations of these iterations."""
        return (self.ends - self.begins)[self.within(window)]

    def computations(self, window: Window) -> Floats:
        """Seconds of their computing."""
        return (self.begins - np.concatenate([[0.0], self.ends[:-1]]))[self.within(window)]
