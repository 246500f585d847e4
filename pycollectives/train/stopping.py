"""One rank that is to stop tells all others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from mpi4py import MPI

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from typing_extensions import Self

__all__ = ["Stop"]


class Stop:
    """Whether any rank is to stop; made and left collectively.

    Used as a function between two steps: a rank that is to stop tells the others, which learn of it when they ask. No
    rank waits for another meanwhile.

    Parameters
    ----------
    comm
        All ranks.
    is_signalled
        Whether this rank is to stop.
    """

    def __init__(self, comm: MPI.Comm, is_signalled: Callable[[], bool]) -> None:
        self._comm = comm.Dup()
        self._is_signalled = is_signalled
        self._known = False
        self._told = np.zeros(comm.size, dtype=np.int64)  # messages sent to each rank
        self._heard = 0
        self._sends: list[MPI.Request] = []

    def __call__(self) -> bool:
        """Whether to stop, as far as this rank knows."""
        if not self._known and self._comm.Iprobe(MPI.ANY_SOURCE):
            self._hear()
        elif not self._known and self._is_signalled():
            self._tell()
        return self._known

    def _tell(self) -> None:
        self._known = True
        for rank in range(self._comm.size):
            if rank != self._comm.rank:
                self._sends.append(self._comm.Isend([None, 0, MPI.BYTE], rank))
                self._told[rank] += 1

    def _hear(self) -> None:
        self._comm.Recv([None, 0, MPI.BYTE], MPI.ANY_SOURCE)
        self._heard += 1
        self._known = True

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Receive what was sent and not needed."""
        if kind is not None:
            return
        expected = np.zeros(1, dtype=np.int64)
        self._comm.Reduce_scatter_block(self._told, expected)
        while self._heard < expected[0]:
            self._hear()
        MPI.Request.Waitall(self._sends)
        self._comm.Free()
