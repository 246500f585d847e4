"""Record the seconds of a program's steps, for `python -m pycollectives advise`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import os
    from types import TracebackType

    from mpi4py import MPI
    from typing_extensions import Self

    from ..communicator import Communicator


class StepTimer:
    """Record the seconds of this rank's steps: of the work in a `with` block, without the waiting for other ranks.

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
        """Record nothing yet."""
        self.seconds: list[float] = []
        self._begin: float | None = None

    def __enter__(self) -> Self:
        """Begin a step. RuntimeError if one has begun."""
        if self._begin is not None:
            raise RuntimeError("StepTimer: a step has begun and not ended; blocks cannot be nested")
        self._begin = time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        """End the step. A step that an exception ends is not recorded."""
        assert self._begin is not None
        seconds = time.perf_counter() - self._begin
        self._begin = None
        if kind is None:
            self.seconds.append(seconds)

    def save(self, comm: MPI.Comm | Communicator, path: str | os.PathLike[str]) -> None:
        """Write the times of all ranks to a CSV file: a line for each step that all ranks made, a column for each rank.

        Collective over `comm`. Rank 0 writes the file.

        Parameters
        ----------
        comm
            A communicator of mpi4py, or a `Communicator`, whose `mpi_comm` is used.
        path
            The file's name. Only rank 0 uses it.

        Raises
        ------
        ValueError
            A rank has recorded no step. On all ranks.
        OSError
            Rank 0 cannot write the file. On all ranks.
        """
        from .native import MPI

        mpi_comm = comm if isinstance(comm, MPI.Comm) else comm.mpi_comm
        columns = mpi_comm.allgather(np.array(self.seconds))
        steps = min(len(column) for column in columns)
        if steps == 0:
            none = ", ".join(str(rank) for rank, column in enumerate(columns) if len(column) == 0)
            raise ValueError(f"StepTimer: expected steps of all ranks, got none of ranks {none}")
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
