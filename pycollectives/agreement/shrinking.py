"""`Communicator.shrink`: the survivors of a death make a communicator of their own."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ..support.deadline import Deadline
from ..support.environment import settings
from ..support.errors import ClosedError, RankFailedError, StallError, TransportError
from ..support.stall_warning import StallWarning
from .consistency import describe_ranks
from .survivors import Message, Survivors

if TYPE_CHECKING:
    from collections.abc import Callable

    from mpi4py import MPI

    from ..communicator import Communicator
    from .survivors import Decision

__all__ = ["Shrinking", "shrink"]

T = TypeVar("T")

PAUSE_S = 0.5e-3
"""Between looks at messages."""
PATIENCE_S = 5.0
"""With an MPI that does not report a death that was seen otherwise."""


def shrink(comm: Communicator, *, timeout: float | None = None) -> Communicator:
    """Return a new communicator of the surviving ranks; collective over them.

    Call it after `RankFailedError`, which every survivor's next call raises. This communicator and its open collectives
    close as by `abort`: undelivered contributions are discarded. The survivors keep their order and are renumbered from
    0. The new communicator has the options of this one; its `mpi_comm` contains the survivors only. Ranks that die
    during the call are left out too. If a rank dies later, shrink the new communicator.

    Requires an MPI that survives deaths: Open MPI 5 under `mpirun --with-ft ulfm`.

    Parameters
    ----------
    timeout
        Seconds; None for the communicator's default, `math.inf` for no limit.

    Returns
    -------
    Communicator
        Of the same class.

    Raises
    ------
    StallError
        Some survivors have not called it in time; names them. Call it again to continue.
    ClosedError
        The communicator was closed by `close`, or has been shrunk.
    RuntimeError
        The ranks are threads of one process, or this MPI does not report dead ranks.
    RankFailedError
        The other ranks count this one as dead.
    """
    if comm.transport != "mpi":
        raise RuntimeError("shrink: expected a communicator on MPI: threads of one process die together")
    if comm._shrinking is None:
        comm._shrinking = Shrinking(comm)
    return comm._shrinking.run(Deadline(comm._context.limit(timeout)))


class Shrinking:
    """One rank's way to the new communicator: what an interrupted `shrink` goes on with.

    Steps of `Survivors` alternate: the even ones ask who is there, the odd ones whether all have made the communicator.
    Messages go over the duplicate that the failed communicator's engine used.
    """

    def __init__(self, old: Communicator) -> None:
        """Of a communicator that has failed."""
        from ..support.native import MPI

        duplicate = old._engine.mpi_duplicate()
        if duplicate is None:
            raise ClosedError(f"shrink: {old.name} is closed")
        self._old = old
        self._mpi = duplicate
        self._tag = MPI.COMM_WORLD.Get_attr(MPI.TAG_UB) or 32767  # the engine's are lower
        self._survivors = Survivors(old.rank, old.size)
        self._sending: list[MPI.Request] = []
        self._new: Communicator | None = None
        self._error: BaseException | None = None  # why this rank could not make it
        self._turn = threading.Lock()
        self._is_over = False

    def run(self, deadline: Deadline) -> Communicator:
        """Return the new communicator."""
        with self._turn:
            if self._is_over:
                raise ClosedError(f"shrink: {self._old.name} was shrunk before: use the communicator that it returned")
            self._old.abort()
            while True:
                if self._survivors.step % 2 == 0:
                    self._make(self._decide(agrees=True, deadline=deadline), deadline)
                decision = self._decide(agrees=self._error is None, deadline=deadline)
                self._survivors.next_step()
                if decision.agreed and self._new is not None and self._new.size == len(decision.members):
                    self._is_over = True
                    self._old._engine.supersede()
                    return self._new
                if self._new is not None:
                    self._new.abort()
                    self._new._engine.supersede()
                if self._error is not None and not isinstance(self._error, RankFailedError):
                    raise self._error

    def _make(self, decision: Decision, deadline: Deadline) -> None:
        self._new, self._error = None, None
        if self._old.rank not in decision.members:
            raise RankFailedError(f"shrink: {describe_ranks(decision.members)} go on without this rank")
        comm = self._mpi.Shrink()
        comm.Set_name(self._old.name)
        new = type(self._old).__new__(type(self._old))
        try:
            new._open(comm, self._old._arguments, limit=deadline.remaining())
            self._new = new
        except BaseException as error:
            self._error = error
            comm.Revoke()  # the others may wait for this rank in MPI's collectives
            if not isinstance(error, Exception):
                raise
        finally:
            self._survivors.next_step()

    def _decide(self, *, agrees: bool, deadline: Deadline) -> Decision:
        """Take part in a step until it is decided."""
        survivors = self._survivors
        warning = StallWarning(settings().stall_warning, f"rank {self._old.rank} of {self._old.size}")
        self._look_for_deaths()
        self._send(survivors.come(agrees=agrees))
        try:
            while (decision := survivors.decision()) is None:
                if self._receive():
                    continue
                if deadline.passed and survivors.may_withdraw:
                    raise StallError(
                        f"shrink of {self._old.name}: not complete after {warning.waited:.3g} s; "
                        f"{self._absent()}. Call it again to go on waiting."
                    )
                if warning.is_due():
                    warning.say(f"shrink of {self._old.name}", self._absent())
                if warning.waited > PATIENCE_S:
                    self._check_reported()
                time.sleep(PAUSE_S)
        except BaseException:
            if survivors.may_withdraw:
                self._send(survivors.withdraw())
            raise
        return decision

    def _absent(self) -> str:
        missing = self._survivors.missing
        return f"have not called it: {describe_ranks(missing)}" if missing else "all have called it"

    def _check_reported(self) -> None:
        """Whether MPI reports those that are missing here and known to be dead otherwise."""
        seen = set(getattr(self._old_failure(), "ranks", ())) & set(self._survivors.missing)
        if seen:
            raise RuntimeError(
                f"shrink of {self._old.name}: {describe_ranks(sorted(seen))} died, which MPI does not report: start "
                "the job so that MPI survives deaths (mpirun --with-ft ulfm)"
            )

    def _old_failure(self) -> Exception | None:
        try:
            self._old._engine.check_usable()
        except Exception as error:
            return error
        return None

    def _send(self, messages: list[Message]) -> None:
        self._sending = [request for request in self._sending if not _is_complete(request)]
        for message in messages:
            for rank in self._survivors.live:
                if rank == self._old.rank:
                    continue
                sending = self._reporting_deaths(partial(self._mpi.isend, tuple(message), rank, self._tag))
                if sending is not None:
                    self._sending.append(sending)

    def _receive(self) -> bool:
        """Take a message, if there is one."""
        from ..support.native import MPI

        status = MPI.Status()
        arrived = self._reporting_deaths(partial(self._mpi.improbe, MPI.ANY_SOURCE, self._tag, status))
        if arrived is None:
            return False
        message = Message(*arrived.recv())
        self._send(self._survivors.receive(status.source, message))
        return True

    def _reporting_deaths(self, call: Callable[[], T]) -> T | None:
        """Return what `call` does; None if a death prevents it."""
        from ..support.native import MPI

        try:
            return call()
        except MPI.Exception as error:
            if error.Get_error_class() not in (MPI.ERR_PROC_FAILED, MPI.ERR_PROC_FAILED_PENDING):
                raise TransportError(f"shrink of {self._old.name}: {error}") from error
        self._look_for_deaths()
        return None

    def _look_for_deaths(self) -> None:
        from ..support.native import MPI

        try:
            self._mpi.Ack_failed()  # or every look at messages fails
            failed = self._mpi.Get_failed()
        except (MPI.Exception, NotImplementedError) as error:
            raise RuntimeError(
                f"shrink: this MPI library cannot go on after a death ({error}): use Open MPI 5, and start the job "
                "with mpirun --with-ft ulfm"
            ) from error
        ranks = set(failed.Translate_ranks(None, self._mpi.Get_group()))
        if not ranks <= self._survivors.dead:
            self._send(self._survivors.died(ranks))


def _is_complete(request: MPI.Request) -> bool:
    from ..support.native import MPI

    try:
        return request.Test()
    except MPI.Exception:  # to a rank that has died
        return True
