"""What ranks tell each other beside the training: that one is to stop, or has failed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
from mpi4py import MPI

from ..support.errors import RankFailedError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from typing_extensions import Self

    from ..communicator import Communicator

__all__ = ["Peers"]

STOP, FAILED = 0, 1
"""What a message says of its sender: it is told to stop, or has left by an exception."""

NAP_S = 0.001
"""Between two looks, of a rank that waits: MPI would keep its core busy."""


class Peers:
    """All ranks of a training; made and left collectively. No rank waits for another but in `meet`.

    A rank that is to stop, or that leaves the `with` block by an exception, tells the others, which learn of it when
    they ask or while they wait in `meet`. No rank leaves the block normally without all others, so what a rank has told
    is an error of all, wherever they are.

    Parameters
    ----------
    comm
        All ranks.
    is_signalled
        Whether this rank is to stop.
    """

    def __init__(self, comm: Communicator, is_signalled: Callable[[], bool] = lambda: False) -> None:
        self.comm = comm.mpi_comm.Dup()
        self._advance = comm.advance
        self._is_signalled = is_signalled
        self._stopped = False
        self._failed: set[int] = set()
        self._told = np.zeros(self.comm.size, dtype=np.int64)  # messages sent to each rank
        self._heard = 0
        self._sends: list[MPI.Request] = []

    def is_stopped(self) -> bool:
        """Whether to stop, as far as this rank knows.

        Raises
        ------
        RankFailedError
            A rank has told that it failed.
        """
        self._listen()
        return self._stopped

    def meet(self) -> None:
        """Wait for all ranks, and listen to them meanwhile; collective.

        Raises
        ------
        RankFailedError
            A rank has told that it failed, before it came or after.
        """
        arrived = self.comm.Ibarrier()
        while not arrived.Test():
            self._listen()
            self._advance()
            time.sleep(NAP_S)
        self._listen()

    def _listen(self) -> None:
        while self.comm.Iprobe(MPI.ANY_SOURCE):
            self._hear()
        if not self._stopped and self._is_signalled():
            self._stopped = True
            self._tell(STOP)
        if self._failed:
            raise RankFailedError(f"rank {min(self._failed)} has left the training by an exception")

    def _tell(self, what: int) -> None:
        message = np.array([what], dtype=np.int64)
        for rank in range(self.comm.size):
            if rank != self.comm.rank:
                self._sends.append(self.comm.Isend(message, rank))
                self._told[rank] += 1

    def _hear(self) -> None:
        message, status = np.empty(1, dtype=np.int64), MPI.Status()
        self.comm.Recv(message, MPI.ANY_SOURCE, status=status)
        self._heard += 1
        if message[0] == STOP:
            self._stopped = True
        else:
            self._failed.add(status.source)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Receive what was sent and not needed; after an exception tell the others, unless it is one of theirs."""
        if kind is not None:
            if not self._failed:
                self._tell(FAILED)
            return
        expected = np.zeros(1, dtype=np.int64)
        self.comm.Reduce_scatter_block(self._told, expected)
        while self._heard < expected[0]:
            self._hear()
        MPI.Request.Waitall(self._sends)
        self.comm.Free()
