"""Record the seconds of a program's steps, for `python -m pycollectives advise`."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator
    from types import TracebackType

    from mpi4py import MPI
    from typing_extensions import Self

    from ..communicator import Communicator


class StepTimer:
    """Record the seconds of work in each step of this rank, in a `with` block without waits for other ranks.

    The optimizers of `pycollectives.torch` record their steps in the timer that they receive as `step_timer`. A loop
    without a block for the work calls `lap` after each step, and waits in blocks of `excluded`.

    `save` writes the times of all ranks to a file, from which `python -m pycollectives advise` forecasts the speed of
    every method.

    Attributes
    ----------
    seconds
        The recorded times, one for each block that ended without an exception.

    >>> timer = StepTimer()
    >>> for _ in range(3):
    ...     with timer:  # the step's own work
    ...         _ = sum(range(1000))
    >>> len(timer.seconds)
    3
    """

    def __init__(self) -> None:
        """Make a timer without recorded steps."""
        self.seconds: list[float] = []
        self._begin: float | None = None
        self._excluded, self._depth = 0.0, 0

    def __enter__(self) -> Self:
        """Begin a step. RuntimeError if a step has already begun."""
        if self._begin is not None:
            raise RuntimeError("StepTimer: a step has begun and not ended; blocks cannot be nested")
        self._begin, self._excluded = time.perf_counter(), 0.0
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        """End the step. A step that an exception ends is not recorded."""
        assert self._begin is not None
        seconds = time.perf_counter() - self._begin - self._excluded
        self._begin = None
        if kind is None:
            self.seconds.append(seconds)

    def lap(self) -> None:
        """End a step, and begin the next one. The first call only begins a step."""
        now = time.perf_counter()
        if self._begin is not None:
            self.seconds.append(now - self._begin - self._excluded)
        self._begin, self._excluded = now, 0.0

    @contextlib.contextmanager
    def excluded(self) -> Iterator[None]:
        """Return a context whose time is left out of the step. Blocks may be nested."""
        begin = time.perf_counter()
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0:
                self._excluded += time.perf_counter() - begin

    def save(self, comm: MPI.Comm | Communicator, path: str | os.PathLike[str]) -> None:
        """Write the times of all ranks to a CSV file: a line for each step that all ranks made, a column for each rank.

        Collective over `comm`. Rank 0 writes the file.

        Parameters
        ----------
        comm
            An mpi4py communicator, or a `Communicator`, whose `mpi_comm` is used.
        path
            The file's name. Only rank 0 uses it.

        Raises
        ------
        ValueError
            A rank has recorded no step. All ranks raise it.
        OSError
            Rank 0 cannot write the file. All ranks raise it.
        """
        from .native import MPI

        mpi_comm = comm if isinstance(comm, MPI.Comm) else comm.mpi_comm
        columns = mpi_comm.allgather(np.array(self.seconds))
        steps = min(len(column) for column in columns)
        if steps == 0:
            none = ", ".join(str(rank) for rank, column in enumerate(columns) if len(column) == 0)
            raise ValueError(f"StepTimer: expected steps on all ranks, got none on ranks {none}")
        failure = None
        if mpi_comm.rank == 0:
            try:
                lines = np.stack([column[:steps] for column in columns], axis=1)
                head = "seconds of a step's work: a line per step, a column per rank"
                np.savetxt(Path(path), lines, fmt="%.6g", delimiter=",", header=head)
            except OSError as error:
                failure = error
        if failure := mpi_comm.bcast(failure):
            raise failure
