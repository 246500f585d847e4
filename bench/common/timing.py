"""Time collectives in rotation, under given delays: barriers, blocks of calls, CPU time, and timelines of workers."""

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
LONGEST_NAP = (
    400e-6  # bounds the time between ranks at the end of a barrier; small compared with a skew of milliseconds
)


class Barrier(Protocol):
    def wait(self, rest_until: float = 0.0) -> None:
        """Return when every rank has called. No other rank can call before `rest_until` (time.perf_counter)."""


class SleepingBarrier:
    """Naps instead of spinning, so that waiting ranks leave the cores to ranks in their timed call."""

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
    """MPI_Barrier, which releases the ranks as close together as MPI can. For balanced runs."""

    def __init__(self, comm: MPI.Comm) -> None:
        self._comm = comm

    def wait(self, rest_until: float = 0.0) -> None:
        del rest_until  # no rank is late in a balanced run
        self._comm.Barrier()


# --- Blocks of calls --------------------------------------------------------------------------------------------------

BLOCKS = 4


@dataclass(frozen=True)
class Procedure:
    """The calls of a cell: blocks, each with a warm-up, under given delays."""

    barrier: Barrier
    delays: Floats  # (calls, ranks) seconds, with warm-up calls
    inject: Callable[[float], None]
    iterations: int
    warmup: int  # of each block
    until_stationary: bool = False  # the warm-up may end earlier (warmup.py)

    def blocks(self) -> list[int]:
        """Return the number of counted calls of each block."""
        return block_sizes(self.iterations)


def block_sizes(iterations: int) -> list[int]:
    blocks = min(BLOCKS, iterations)
    return [iterations // blocks + (block < iterations % blocks) for block in range(blocks)]


def calls_of(iterations: int, warmup: int) -> int:
    """Return the number of calls of a cell with its warm-up."""
    return iterations + warmup * len(block_sizes(iterations))


@dataclass(frozen=True)
class Samples:
    """(ranks, iterations) seconds, on rank 0; `arrivals` count from an instant that all ranks share."""

    arrivals: Floats
    latencies: Floats
    warmups: tuple[int, ...] = ()  # calls of each block's warm-up
    stationary: bool = True  # no warm-up reached its limit


@dataclass(frozen=True)
class Block:
    """One rank's block of one subject."""

    times: Floats  # (counted calls, 3) seconds: end of the barrier, arrival, latency
    warmup: int  # calls before them
    stationary: bool


def measure(comm: MPI.Comm, subjects: Sequence[Subject], procedure: Procedure) -> list[Samples]:
    """Return one Samples per subject, meaningful on rank 0; collective.

    Subjects take turns, a block each under the same delays, so that noise affects all of them.

    Clocks of several machines differ, so there an arrival counts from the end of the rank's own barrier.
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
    """Run one block. `delays` begin with the warm-up's, some of them possibly unused."""
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
        barrier.wait(rest_until=released + longest)  # no rank checks while another is in its timed call
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
    """Let rank 0 decide, since sums need not have the same bits on all ranks."""
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
    """Whether ranks share a clock: time.perf_counter is CLOCK_MONOTONIC, the same on one machine, unlike MPI_Wtime."""
    from mpi4py import MPI  # starts MPI; the rest of this module does not need it

    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    alone = node.size == comm.size
    node.Free()
    return bool(alone)


# --- CPU time of this process's threads, from /proc (Linux) -----------------------------------------------------------

TASKS = Path("/proc/self/task")


def thread_ids() -> set[int]:
    return {int(name) for name in os.listdir(TASKS)}


def cpu_seconds(threads: set[int]) -> float:
    """Return the CPU seconds of the living threads among `threads`."""
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


# --- A worker's times of computing and synchronizing ------------------------------------------------------------------


@dataclass(frozen=True)
class Window:
    """The measured time, in seconds since the start of all workers.

    Workers make different numbers of iterations, and none waits for others at the end. All run until a common deadline
    and finish the iteration that spans it. The figures cover the window before the deadline, in which all are running.
    An iteration that spans an end of the window counts by its part in the window. Otherwise a worker with few
    iterations would be measured too slow by up to one iteration.
    """

    begin: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin


@dataclass(frozen=True)
class Timeline:
    """One worker's iterations; seconds since the start of all workers.

    An iteration lasts from the end of the previous one to the end of its synchronization.
    """

    begins: Floats  # of its synchronizations
    ends: Floats

    def iterations_at(self, instant: float) -> float:
        """Return the number of iterations done at an instant; the current one counts by its elapsed part."""
        return float(np.interp(instant, np.concatenate([[0.0], self.ends]), np.arange(len(self.ends) + 1.0)))

    def iterations_per_s(self, window: Window) -> float:
        return (self.iterations_at(window.end) - self.iterations_at(window.begin)) / window.seconds

    def sync_fraction(self, window: Window) -> float:
        """Return the share of the window in which it synchronizes (waits for its group and averages)."""
        begins = np.clip(self.begins, window.begin, window.end)
        ends = np.clip(self.ends, window.begin, window.end)
        return float((ends - begins).sum() / window.seconds)

    def within(self, window: Window) -> NDArray[np.bool_]:
        """Return the iterations that ended in the window; all if none did."""
        ended = (self.ends > window.begin) & (self.ends <= window.end)
        return ended if ended.any() else np.ones(len(self.ends), np.bool_)

    def latencies(self, window: Window) -> Floats:
        """Return the seconds of these iterations' synchronizations."""
        return (self.ends - self.begins)[self.within(window)]

    def computations(self, window: Window) -> Floats:
        """Return the seconds of these iterations' computing."""
        return (self.begins - np.concatenate([[0.0], self.ends[:-1]]))[self.within(window)]
