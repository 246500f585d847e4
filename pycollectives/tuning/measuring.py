"""Measure the algorithms on this machine, for the table of `algorithm="auto"`.

For 2, 4, 8, ... ranks and each size, a pass times all choices one after another: the board, at large sizes with several
segment sizes, and every schedule. There are as many passes as the time allows, so that noise affects all choices
equally.

In *balanced* rounds, all ranks leave a barrier and call; the policy is `Full`. In *sparse* rounds, one rank calls at
once, a different rank each time, and the other ranks sleep for `SKEW` seconds; the policy is `Solo`, and late data is
dropped. A call is timed from its contribution to its result; the figure is the median over calls of the mean over
ranks.
"""

from __future__ import annotations

import platform
import time
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import numpy as np

from ..communicator import Communicator
from ..policies import Full, Policy, Solo
from ..selection import tables
from ..selection.choice import BOARD, DEFAULT_SEGMENT_BYTES, Choice, Row, SelectionTable
from ..support.machine import Machine
from .derivation import PASSES_NEEDED, Cell, derive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mpi4py import MPI

    from ..support.typing import Late

SIZES = (8, 1024, 8192, 65536, 262144, 1048576, 4194304)
SEGMENTS = (16384, 32768, 131072, 262144, 524288)
"""Segment sizes to try besides the default, in bytes, for data of at least two segments."""

MAX_PASSES = 9
WARMUP = 3
SKEW = 2e-3
FIRST_NAP = 50e-6
LONGEST_NAP = 400e-6
IDLE_NAP = 5e-3
"""Sleep of ranks that take no part in a measurement, so that they do not use the cores of ranks that do."""


def rank_counts(ranks: int) -> list[int]:
    """Return the numbers of ranks to measure: powers of two, and the number of all ranks.

    >>> rank_counts(6)
    [2, 4, 6]
    """
    return sorted({*(2**k for k in range(1, ranks.bit_length()) if 2**k <= ranks), ranks})


def calls_of(nbytes: int, *, sparse: bool) -> int:
    """Return the number of calls to time in a pass."""
    if sparse:
        return 10 if nbytes <= 262144 else 6
    return 30 if nbytes <= 8192 else 16 if nbytes <= 262144 else 8


@dataclass(frozen=True)
class Measured:
    """The measurements, on rank 0."""

    cells: Sequence[Cell]  # those that were timed at least once
    passes: int  # complete ones
    elapsed: float  # seconds
    timed_out: bool  # whether the time ended before each cell had the passes that a decision needs
    among: str | None  # the partners of schedules; see `Row`


@dataclass
class Tuning:
    """The measurement, by all ranks of a communicator of at least two ranks."""

    world: MPI.Comm  # smaller numbers of ranks use its first ranks
    sizes: Sequence[int]  # bytes of one rank's data, multiples of 4, ascending
    seconds: float  # after which no new cell begins
    schedules: Sequence[str]  # of the engine
    passes: int = MAX_PASSES  # the most
    # called on rank 0 with the pass, the cells that are done, and all cells
    on_progress: Callable[[int, int, int], None] = lambda number, done, cells: None
    _seconds: dict[tuple[int, int, bool], dict[Choice, list[float]]] = field(default_factory=dict)
    _ranks_per_machine: int = 0

    def run(self) -> Measured:
        """Measure all choices; collective. The result is valid on rank 0. RuntimeError if a sum was wrong."""
        begin = time.perf_counter()
        self._ranks_per_machine = self._largest_machine()
        counts = rank_counts(self.world.size)
        groups = [self._group(ranks) for ranks in counts]
        cells = len(counts) * len(self.sizes) * 2
        complete = 0
        up = False
        while complete < self.passes and not up:
            done = 0
            for group in groups:
                if group is not None:
                    done = self._pass(group, complete, done, cells, begin + self.seconds)
                _come_together(self.world, IDLE_NAP)
                up = self.world.bcast(time.perf_counter() - begin >= self.seconds)
                if up:
                    break
            complete += self.world.bcast(done) == cells
        among = None if self._ranks_per_machine == 1 else "ranks"
        for group in groups:
            if group is not None:
                group.comm.Free()
        found = [Cell(*place, seconds) for place, seconds in sorted(self._seconds.items())]
        few = len(found) < cells or any(cell.passes < PASSES_NEEDED for cell in found)
        return Measured(found, complete, time.perf_counter() - begin, few, among)

    def _group(self, ranks: int) -> _Group | None:
        """Return the group of the first `ranks` ranks; None on other ranks."""
        from ..support.native import MPI

        if ranks == self.world.size:
            return _Group(self.world.Dup(), self._ranks_per_machine == ranks)
        comm = self.world.Split(0 if self.world.rank < ranks else MPI.UNDEFINED, self.world.rank)
        if comm == MPI.COMM_NULL:
            return None
        return _Group(comm, _ranks_of_machine(comm) == ranks)

    def _largest_machine(self) -> int:
        from ..support.native import MPI

        return int(self.world.allreduce(_ranks_of_machine(self.world), MPI.MAX))

    def _pass(self, group: _Group, number: int, done: int, cells: int, end: float) -> int:
        """Time each cell of a group once, until time `end`; return `done` plus the number of cells that were timed."""
        for nbytes in self.sizes:
            for sparse in (False, True):
                if group.comm.bcast(time.perf_counter() >= end):
                    return done
                choices = list(self._choices(group, nbytes, sparse=sparse))
                times = self._seconds.setdefault((group.comm.size, nbytes, sparse), {})
                for choice in choices if number % 2 == 0 else reversed(choices):
                    seconds = group.time(choice, nbytes, sparse=sparse, first=number)
                    if seconds is not None:
                        times.setdefault(choice, []).append(seconds)
                done += 1
                if self.world.rank == 0:
                    self.on_progress(number, done, cells)
        return done

    def _choices(self, group: _Group, nbytes: int, *, sparse: bool) -> Iterator[Choice]:
        if group.one_machine:
            yield Choice(True, None, DEFAULT_SEGMENT_BYTES)
            if not sparse:  # with one contributor nothing is reduced
                yield from (Choice(True, None, segment) for segment in SEGMENTS if nbytes >= 2 * segment)
        yield from (Choice(False, schedule) for schedule in self.schedules)

    def notes(self, measured: Measured) -> list[str]:
        """Return remarks on the measurements, as sentences."""
        notes = []
        if measured.timed_out:
            notes.append(
                f"the time ended before all cells were measured {PASSES_NEEDED} times: cells with fewer measurements "
                "keep the built-in choice; allow more --seconds, or fewer --bytes."
            )
        cores = Machine.here().cores
        largest = self._ranks_per_machine
        if largest > cores:
            notes.append(
                f"{largest} ranks share {cores} cores: the table applies to programs whose ranks share cores, not to "
                "machines with a core per rank, and its medians are noisier."
            )
        return notes

    def document(self, measured: Measured) -> tuple[SelectionTable, dict[str, Any]]:
        """Return the derived table, and a JSON document of the table and all measurements."""
        import mpi4py

        from .. import __version__

        machine = Machine.here()
        ranks = self.world.size
        table = derive(
            measured.cells,
            tables.built_in(),
            among=measured.among,
            source=f"python -m pycollectives tune, {ranks} ranks; where nothing better was measured: "
            f"{tables.built_in().source}",
        )
        tuning = {
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "ranks": ranks,
            "ranks_per_machine": self._ranks_per_machine,
            "passes": measured.passes,
            "seconds": round(measured.elapsed, 1),
            "versions": {
                "pycollectives": __version__,
                "python": platform.python_version(),
                "mpi4py": mpi4py.__version__,
                "numpy": np.__version__,
                "system": f"{platform.system()} {platform.release()}",
            },
            "cells": [cell.as_json() for cell in measured.cells],
        }
        return table, {**table.as_json(), "machine": machine.as_json(), "tuning": tuning}


@dataclass(frozen=True)
class _Group:
    """The ranks that a measurement uses."""

    comm: MPI.Comm
    one_machine: bool

    def time(self, choice: Choice, nbytes: int, *, sparse: bool, first: int) -> float | None:
        """Return the median over calls of the mean over ranks, in seconds; collective, meaningful on rank 0.

        The result is None, on all ranks, if the engine refuses the choice: a schedule may need more tags than this MPI
        has.
        """
        comm = self.comm
        count = nbytes // 4
        contribution = np.ones(count, np.float32)
        calls = WARMUP + calls_of(nbytes, sparse=sparse)
        times = np.empty(calls)
        policy: Policy = Solo() if sparse else Full()
        late: Late = "drop" if sparse else "accumulate"
        with tables.using(_forced(choice)), open_communicator(comm, choice) as communicator:
            try:
                collective = communicator.partial_allreduce(
                    count=count, dtype=np.float32, policy=policy, late=late, missed="latest", algorithm=choice.name
                )
            except ValueError:
                return None
            for call in range(calls):
                if sparse:
                    _come_together(comm, LONGEST_NAP)
                    if comm.rank != (first + call) % comm.size:
                        time.sleep(SKEW)
                else:
                    comm.Barrier()
                begin = time.perf_counter()
                info = collective.contribute(contribution).wait()
                result = collective.result
                times[call] = time.perf_counter() - begin
                expected = len(info.contributors)
                if count and not (result[0] == result[-1] == expected and (sparse or expected == comm.size)):
                    raise RuntimeError(
                        f"{choice.name}, {comm.size} ranks, {nbytes} bytes: expected sums of "
                        f"{expected if sparse else comm.size}, 1 from each contributor, got {result[0]}, {result[-1]}"
                    )
        mean = np.zeros(calls)
        comm.Reduce(times / comm.size, mean)
        return float(np.median(mean[WARMUP:]))


def open_communicator(comm: MPI.Comm, choice: Choice) -> Communicator:
    """Return a communicator for `algorithm=choice.name`: one node for a board, otherwise a node for each rank."""
    return Communicator(comm, ranks_per_node=comm.size if choice.board else 1)


def _forced(choice: Choice) -> SelectionTable:
    """Return a selection table that always selects this choice."""
    return SelectionTable(
        schedule=(Row(choice.schedule or BOARD),),
        board=(Row(choice.board),),
        segment_bytes=(Row(choice.segment_bytes or DEFAULT_SEGMENT_BYTES),),
        name="tune",
    )


def _ranks_of_machine(comm: MPI.Comm) -> int:
    from ..support.native import MPI

    machine = comm.Split_type(MPI.COMM_TYPE_SHARED)
    ranks = int(machine.size)
    machine.Free()
    return ranks


def _come_together(comm: MPI.Comm, longest_nap: float) -> None:
    """Wait for all ranks in a barrier, and sleep between polls."""
    request = comm.Ibarrier()
    nap = min(FIRST_NAP, longest_nap)
    while not request.Test():
        time.sleep(nap)
        nap = min(2 * nap, longest_nap)
