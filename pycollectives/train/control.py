"""The control channel of a training job: a rank that must stop or has failed notifies the other ranks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
from mpi4py import MPI

from ..agreement.consistency import describe_ranks
from ..support.environment import settings
from ..support.errors import RankFailedError
from ..support.stall_warning import StallWarning
from .survivors import is_death

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from typing_extensions import Self

    from ..communicator import Communicator

STOP, FAILED, WAITS = 0, 1, 2
"""The meaning of a message: its sender must stop, has left after an exception, or waits in a barrier."""

NAP_S = 0.001
"""Sleep between two polls of a waiting rank: MPI would keep its core busy."""

ANSWER_S = 0.5
"""How long before a warning a rank asks which other ranks wait."""


class ControlChannel:
    """One rank's end of the control channel. Ranks create and leave the channel together, and wait only in `barrier`.

    A rank that must stop (`is_signalled`), or that leaves the `with` block because of an exception, sends a message to
    the other ranks, which receive it in `is_stopped` and in `barrier`. All ranks leave the block together unless a rank
    has failed, so a failure of one rank raises an error on every rank.

    After a long wait in a barrier, each rank there notifies the other ranks, so that each can print the missing ranks
    on stderr. With `continues`, a death makes all ranks that wait here raise an error, so that survivors can continue.
    """

    def __init__(
        self, comm: Communicator, is_signalled: Callable[[], bool] = lambda: False, *, continues: bool = False
    ) -> None:
        self._continues = continues
        self._of = comm
        self.comm = comm.mpi_comm.Dup()
        self._advance = comm.advance
        self._is_signalled = is_signalled
        self._stopped = False
        self._failed: set[int] = set()
        self._barrier = 0  # the number of barriers that this rank has reached
        self._told = 0  # the last one that it has reported to the others
        self._waits = np.zeros(self.comm.size, dtype=np.int64)  # the last one that each rank has reported
        self._sent = np.zeros(self.comm.size, dtype=np.int64)  # messages sent to each rank
        self._received = 0
        self._sends: list[MPI.Request] = []

    def is_stopped(self) -> bool:
        """Whether any rank must stop, as far as this rank knows. Raise RankFailedError if another rank has failed."""
        self._poll()
        return self._stopped

    @property
    def stopped(self) -> bool:
        """Whether this rank knows that it must stop. Does not receive messages."""
        return self._stopped

    def barrier(self) -> None:
        """Wait for all ranks, and receive messages while waiting; collective.

        Raise RankFailedError if another rank has failed, before or after that rank reached the barrier.
        """
        self._barrier += 1
        arrived = self.comm.Ibarrier()
        warning = StallWarning(settings().stall_warning, f"rank {self.comm.rank} of {self.comm.size}")
        while not arrived.Test():
            self._poll()
            self._advance()
            self._warn(warning)
            time.sleep(NAP_S)
        self._poll()

    def _warn(self, warning: StallWarning) -> None:
        """Print the missing ranks after a long wait; before that, notify the other ranks that this rank waits."""
        is_asked = self._waits.max() >= self._barrier
        if self._told < self._barrier and (is_asked or warning.is_due(within=ANSWER_S)):
            self._told = self._waits[self.comm.rank] = self._barrier
            self._send(WAITS, self._barrier)
        if warning.is_due():
            missing = np.flatnonzero(self._waits < self._barrier)
            who = f"have not come: {describe_ranks(missing.tolist())}" if missing.size else "all ranks have come by now"
            warning.say("barrier of all ranks in the training", who)

    def _poll(self) -> None:
        while self.comm.Iprobe(MPI.ANY_SOURCE):
            self._receive()
        if not self._stopped and self._is_signalled():
            self._stopped = True
            self._send(STOP)
        if self._failed:
            raise RankFailedError(f"rank {min(self._failed)} has left the training after an exception")

    def _send(self, what: int, barrier: int = 0) -> None:
        message = np.array([what, barrier], dtype=np.int64)
        for rank in range(self.comm.size):
            if rank != self.comm.rank:
                self._sends.append(self.comm.Isend(message, rank))
                self._sent[rank] += 1

    def _receive(self) -> None:
        message, status = np.empty(2, dtype=np.int64), MPI.Status()
        self.comm.Recv(message, MPI.ANY_SOURCE, status=status)
        self._received += 1
        if message[0] == STOP:
            self._stopped = True
        elif message[0] == WAITS:
            self._waits[status.source] = message[1]
        else:
            self._failed.add(status.source)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Receive pending messages; after an exception, notify the other ranks unless one of them failed first.

        After an exception the duplicated communicator is not freed: messages may be pending, and MPI could give its
        identifier to another communicator, which would receive them.
        """
        if kind is None:
            try:
                self._leave_together()
            except MPI.Exception:
                self._on_death()
                raise
        elif self._continues and is_death(error, self._of):
            self._on_death()
        elif not self._failed:
            self._send(FAILED)

    def _on_death(self) -> None:
        """Make every rank that waits here, now or later, raise an error: MPI reports a death to some ranks only."""
        if self._continues:
            self.comm.Revoke()

    def _leave_together(self) -> None:
        expected = np.zeros(1, dtype=np.int64)
        self.comm.Reduce_scatter_block(self._sent, expected)
        while self._received < expected[0]:
            self._receive()
        MPI.Request.Waitall(self._sends)
        self.comm.Free()
