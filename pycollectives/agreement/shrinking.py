"""`Communicator.shrink`: the survivors of a death make a new communicator."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from ..support.deadline import Deadline
from ..support.environment import settings
from ..support.errors import ClosedError, RankFailedError, StallError, TransportError
from ..support.stall_warning import StallWarning
from .consistency import describe_ranks
from .deaths import follows_death
from .survivors import Message, Survivors

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, Protocol

    from mpi4py import MPI

    from .. import _core
    from ..communicator import Communicator
    from .survivors import Decision

    class Old(Protocol):
        """The communicator that is shrunk."""

        _engine: _core.Engine
        _engines: list[_core.Engine]

        @property
        def rank(self) -> int: ...
        @property
        def size(self) -> int: ...
        @property
        def name(self) -> str: ...
        @property
        def _arguments(self) -> tuple[Any, ...]: ...
        def abort(self) -> object: ...
        def _made_within(self, comm: MPI.Comm, limit: float | None, arguments: tuple[Any, ...]) -> Communicator: ...


PAUSE_S = 0.5e-3
"""Pause between looks for messages."""
REPORT_S = 15.0
"""Time within which MPI reports a death that this library has already seen; between hosts it took up to 10 s."""
ANSWER_S = 5.0
"""The least time limit for all ranks to learn whether the communicator is made."""
MAKING_S = 15.0
"""The least time limit for making the new communicator; all of its ranks have arrived by then."""
TURN_S = 5.0
"""Time within which MPI makes a communicator of one rank; on a loaded machine it took some milliseconds."""
AGAIN = ""
"""The objection of a rank that failed because another rank died, or that was interrupted: all ranks try again."""

_sending: list[MPI.Request] = []
"""Sends that may be incomplete. MPI may read their buffers after the communicator is deleted."""


def shrink(comm: Communicator, *, timeout: float | None = None) -> Communicator:
    """Return a new communicator of the surviving ranks; collective over them.

    Call it after a `RankFailedError`. This communicator and its open collectives are aborted, which discards
    undelivered contributions. The survivors keep their order and are renumbered from 0. The new communicator has the
    same arguments as this one; its `mpi_comm` contains only the survivors. Ranks that die during the call are also left
    out. If a rank dies later, shrink the new communicator. Shrink one communicator at a time in a process.

    Requires an MPI that survives deaths: Open MPI 5 under `mpirun --with-ft ulfm`. Every survivor must call `shrink`.
    For MPI, a rank whose program has ended is not dead: the other ranks wait for it until their time limit.

    Parameters
    ----------
    timeout
        Seconds; None for the communicator's default, `math.inf` for no limit. It limits the wait for ranks that have
        not called `shrink`. Making the new communicator may take 20 more seconds, plus MPI's own time.

    Returns
    -------
    Communicator
        An open communicator without collectives.

    Raises
    ------
    StallError
        Some survivors have not called `shrink` in time; the message names them. Call it again to continue.
    ClosedError
        The communicator was closed by `close`, or has been shrunk, or MPI is finalized.
    RuntimeError
        The ranks are threads of one process, MPI cannot continue after a death or does not report a death that this
        library has noticed, a rank could not make the new communicator (raised on all ranks), or another thread is in
        `shrink`. Or, only on this rank: an MPI call that makes communicators from MPI_COMM_WORLD has failed, and this
        communicator lacks ranks of MPI_COMM_WORLD.
    """
    if comm._membership is not None:
        raise RuntimeError("shrink: expected a communicator with on_failure='raise'; this one continues by itself")
    if comm.transport != "mpi":
        raise RuntimeError("shrink: expected a communicator on MPI, got threads of one process, which die together")
    if comm._shrinking is None:
        comm._shrinking = Shrinking(comm)
    return comm._shrinking.run(Deadline(comm._context.limit(timeout)))


class Words(NamedTuple):
    """Parts of messages: the subject, what missing ranks "have not" done, and the advice."""

    subject: str
    called: str
    again: str


class Shrinking:
    """One rank's progress in `shrink`, which survives an interrupted call.

    In even steps of `Survivors` the ranks agree on the members, in odd steps on whether all members have made the new
    communicator. Messages use a duplicate that the old communicator's engine owns.
    """

    def __init__(self, old: Old, numbers: Sequence[int] | None = None, words: Words | None = None) -> None:
        """Check, locally, that the communicator can be shrunk. `numbers`: the numbers of its ranks in messages."""
        duplicate = old._engine.mpi_duplicate()
        if duplicate is None:
            raise ClosedError(f"shrink: {old.name} is closed")
        self._old = old
        self._numbers = range(old.size) if numbers is None else numbers
        self._words = words or Words(f"shrink of {old.name}", "called it", "Call it again to continue")
        self._mpi = duplicate
        self._survivors = Survivors(old.rank, old.size)
        self._tag = tag_of_survivors()
        self._outbox: deque[tuple[int, Message]] = deque()
        self.look_for_deaths()
        self._new: Communicator | None = None
        self._error: BaseException | None = None  # the reason why this rank could not make it
        self._interruption: BaseException | None = None  # raised once no other rank waits for this one
        self._turn = threading.Lock()
        self.is_over = False
        self.members: tuple[int, ...] = ()  # of the communicator that is being made

    def run(self, deadline: Deadline) -> Communicator:
        if not self._turn.acquire(blocking=False):
            raise RuntimeError(f"shrink: another thread is already shrinking {self._old.name}")
        try:
            if self.is_over and self._new is None:
                raise ClosedError(f"shrink: {self._old.name} was shrunk before: use the communicator returned then")
            self._old.abort()
            warning = StallWarning(settings().stall_warning, f"rank {self._old.rank} of {self._old.size}")
            while not self.is_over:
                if self._survivors.step % 2 == 0:
                    give_back_turn(self._mpi)
                    self._make(self._decide(None, deadline, warning), deadline)
                decision = self._decide(self._objection(), deadline.at_least(ANSWER_S), warning)
                self._survivors.next_step()
                self._finish(decision)
                if self._interruption is not None:
                    raise self._take_interruption()
            new, self._new = self._new, None
            assert new is not None
            return new
        finally:
            self._turn.release()

    def _make(self, decision: Decision, deadline: Deadline) -> None:
        """Make the new communicator. In the next step, the other ranks learn whether this rank has made it."""
        comm = None
        self.members = decision.members
        try:
            began = time.monotonic()
            comm = shrunk_by_mpi(self._mpi)
            deadline.extend(time.monotonic() - began)
            comm.Set_name(self._old.name)
            if self._interruption is None and comm.size == len(decision.members):
                limit = deadline.at_least(MAKING_S).remaining()
                self._new = self._old._made_within(comm, limit, self._old._arguments)
        except Exception as error:
            self._error = error
        except BaseException as error:
            self._interruption = error
        finally:
            self._survivors.next_step()
            if self._new is None and comm is not None:
                comm.Revoke()  # other ranks may wait for this one in MPI collectives

    def _objection(self) -> str | None:
        if self._new is not None:
            return None
        if self._error is None or isinstance(self._error, RankFailedError | StallError) or follows_death(self._error):
            return AGAIN
        if self.look_for_deaths() & set(self.members):
            return AGAIN
        return f"{type(self._error).__name__}: {self._error}"

    def _finish(self, decision: Decision) -> None:
        """Keep the new communicator if all members have made it. Raise RuntimeError if a member could not."""
        new, error = self._new, self._error
        if decision.agreed and new is not None and decision.members == self.members:
            self.is_over = True
            supersede(self._old._engines)
            return
        self._new = self._error = None
        if new is not None:
            new.abort()
            supersede(new._engines)
        reasons = {rank: why for rank, why in zip(decision.members, decision.objections, strict=True) if why}
        if reasons:
            rank, why = next(iter(reasons.items()))
            raise RuntimeError(
                f"{self._words.subject}: {self._named([rank])} could not make the communicator: {why}"
            ) from error

    def _decide(self, objection: str | None, deadline: Deadline, warning: StallWarning) -> Decision:
        """Take part in the current step until it is decided."""
        survivors = self._survivors
        is_in = False
        while (decision := survivors.decision()) is None:
            if self._interruption is not None and survivors.may_withdraw:
                interruption = self._take_interruption()
                if is_in:
                    self._withdraw()
                raise interruption
            try:
                if not is_in:
                    is_in = True
                    self._send(survivors.take_part(objection))
                self._advance(deadline, warning)
            except BaseException as error:
                if isinstance(error, TransportError):
                    raise
                if not survivors.may_withdraw:  # the step may be decided: the others rely on this rank
                    self._interruption = error
                    continue
                self._withdraw()
                if self._interruption is not None and isinstance(error, Exception):
                    raise self._take_interruption() from error
                self._interruption = None  # the error is an interruption too
                raise
        self._deliver()
        return decision

    def _withdraw(self) -> None:
        """Withdraw from the current step, because of an error that the caller raises."""
        self._queue(self._survivors.withdraw())
        self._deliver()

    def _deliver(self) -> None:
        """Send all queued messages. Defer interruptions, because other ranks may wait for the messages."""
        while self._outbox:
            try:
                self._flush()
            except TransportError:
                raise
            except BaseException as error:
                self._interruption = error

    def _take_interruption(self) -> BaseException:
        error, self._interruption = self._interruption, None
        assert error is not None
        return error

    def _advance(self, deadline: Deadline, warning: StallWarning) -> None:
        """Process a message, or wait for one. Raise StallError at the time limit."""
        self._flush()
        if self._receive():
            return
        if deadline.passed and self._survivors.may_withdraw:
            raise StallError(
                f"{self._words.subject}: not complete after {warning.waited:.3g} s; {self._absent()}. "
                f"{self._words.again}."
            )
        if warning.is_due():
            warning.say(self._words.subject, self._absent())
        time.sleep(PAUSE_S)
        if warning.waited > REPORT_S:
            self._check_reported()

    def _absent(self) -> str:
        missing = self._survivors.missing
        if not missing:
            return "all ranks are ready"
        what = self._words.called if self._survivors.step % 2 == 0 else "made the new communicator"
        return f"have not {what}: {self._named(missing)}"

    def _named(self, ranks: list[int]) -> str:
        return describe_ranks([self._numbers[rank] for rank in ranks])

    def _check_reported(self) -> None:
        """Raise RuntimeError if missing ranks are dead, but MPI does not report their deaths."""
        try:
            self._old._engine.check_usable()
        except RankFailedError as error:
            seen = sorted(set(error.ranks) & set(self._survivors.missing))
        except Exception:
            return
        else:
            return
        if seen:
            raise RuntimeError(
                f"{self._words.subject}: {self._named(seen)} died, but MPI does not report it, and can make no "
                "communicator without these ranks. Was the job started with mpirun --with-ft ulfm?"
            )

    # --- messages

    def _send(self, messages: list[Message]) -> None:
        """Send messages to all live ranks, in order, even if interrupted."""
        self._queue(messages)
        self._flush()

    def _queue(self, messages: list[Message]) -> None:
        others = [rank for rank in self._survivors.live if rank != self._old.rank]
        self._outbox.extend((rank, message) for message in messages for rank in others)

    def _flush(self) -> None:
        _sending[:] = [request for request in _sending if not _is_complete(request)]
        found_death = False
        while self._outbox:
            rank, message = self._outbox[0]
            if rank not in self._survivors.dead:
                try:
                    _sending.append(self._mpi.isend(tuple(message), rank, self._tag))
                except Exception as error:
                    self._check_is_death(error)
                    found_death = True
            self._outbox.popleft()
        if found_death:
            self.look_for_deaths()

    def _receive(self) -> bool:
        from ..support.native import MPI

        status = MPI.Status()
        try:
            arrived = self._mpi.improbe(MPI.ANY_SOURCE, self._tag, status)
            content = None if arrived is None else arrived.recv()
        except Exception as error:
            self._check_is_death(error)
            self.look_for_deaths()
            return False
        if content is None:
            return False
        self._send(self._survivors.receive(status.source, Message(*content)))
        return True

    def _check_is_death(self, error: Exception) -> None:
        """Raise TransportError if the MPI error is not due to a death."""
        from ..support.native import MPI

        if not follows_death(error) or error.Get_error_class() == MPI.ERR_REVOKED:  # it is never revoked
            raise TransportError(f"{self._words.subject}: {error}") from error

    def look_for_deaths(self) -> set[int]:
        """Process the deaths that MPI reports, and return the dead ranks."""
        failed = self._old._engine.acknowledge_failed()
        if failed is None:
            raise RuntimeError(
                "shrink: this MPI cannot continue after a death: use Open MPI 5, and start the job with "
                "mpirun --with-ft ulfm"
            )
        if not set(failed) <= self._survivors.dead:
            self._send(self._survivors.died(set(failed)))
        return self._survivors.dead


def tag_of_survivors() -> int:
    """Return the tag of this package's own messages; the engine's tags are lower."""
    from ..support.native import MPI

    return MPI.COMM_WORLD.Get_attr(MPI.TAG_UB) or 32767


def supersede(engines: Iterable[_core.Engine]) -> None:
    """Suppress failure reports of these engines at the end of the program: the survivors have new ones."""
    for engine in engines:
        engine.supersede()


# In a process, Open MPI (5.0.11) makes one communicator at a time: the one whose parent has the lowest context number.
# If a creation fails because a rank died, it keeps its turn, and Shrink waits for it indefinitely. A later creation
# that does not wait gives the turn back. MPI_COMM_WORLD has the lowest number, MPI_COMM_SELF the next.


def give_back_turn(comm: MPI.Comm) -> None:
    """Let MPI make communicators again after a creation has failed in this process; local.

    Raise RuntimeError if the failed creation was on MPI_COMM_WORLD, unless `comm` has the same ranks: in that case
    `shrunk_by_mpi` does not wait.
    """
    from ..support.native import MPI

    if _is_world(comm):
        return
    made, request = MPI.COMM_SELF.Idup()
    limit = Deadline(TURN_S)
    while not request.Test():
        if limit.passed:
            raise RuntimeError(
                "shrink: MPI can make no communicator, because a rank died while one was made from MPI_COMM_WORLD. "
                "Make communicators from a duplicate of MPI_COMM_WORLD instead"
            )
        time.sleep(PAUSE_S)
    made.Free()


def shrunk_by_mpi(comm: MPI.Comm) -> MPI.Comm:
    """Return MPI's communicator of the survivors; collective over them."""
    from ..support.native import MPI

    return (MPI.COMM_WORLD if _is_world(comm) else comm).Shrink()


def _is_world(comm: MPI.Comm) -> bool:
    """Return whether MPI_COMM_WORLD has the same ranks in the same order."""
    from ..support.native import MPI

    return MPI.Comm.Compare(comm, MPI.COMM_WORLD) in (MPI.IDENT, MPI.CONGRUENT)


def _is_complete(request: MPI.Request) -> bool:
    from ..support.native import MPI

    try:
        return request.Test()
    except MPI.Exception:  # to a rank that has died
        return True
