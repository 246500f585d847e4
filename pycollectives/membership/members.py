"""How the members of a communicator continue after a death.

A call that detects a dead rank recovers, in the application's thread, together with all survivors:

  stop      The engine stops, and no thread is in a call of a collective. From now on, nothing completes on this rank.
  shrink    The survivors agree on the members and make a communicator, with a new engine (agreement/shrinking.py).
  collect   Each rank sends its state of each collective to the others, such as the number of completed rounds.
  fill      If a round completed on some survivors only, one of them sends its result to the others.
  remake    Each collective is made again, and takes over the results that this rank has not received.
            A rank that replaces a dead one takes part in its own calls that create collectives (joining.py).
  install   When all survivors have made all collectives, each one again contributes its data that is in no completed
            round.

If another rank dies during these steps, the survivors begin again on the newest communicator. Before `install`, no
rank has contributed to a new collective, so every rank can discard it.
"""

from __future__ import annotations

import contextlib
import pickle
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ..agreement.consistency import describe_ranks
from ..agreement.shrinking import Words, supersede
from ..at_exit import open_communicators
from ..partial_reduce.continuing_groups import ContinuingGroups
from ..support.deadline import Deadline
from ..support.errors import RankFailedError
from ..support.interrupts import interrupts_later
from .change import MembershipChange
from .job import ShrunkCommunicator, ShrunkJob, Starter
from .joining import Joining, Plan, Sender, described
from .whole_calls import WholeCalls

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from .. import _core
    from ..arguments import Arguments
    from ..collective import Collective
    from ..communicator import Communicator
    from ..context import Context, PendingCreation
    from .job import Job

    class Recoverable(Protocol):
        """A collective of a communicator with `on_failure="continue"`. Recoveries call its methods in this order."""

        @property
        def ended(self) -> bool:
            """Whether all ranks have left, and no data is pending."""

        def stopped(self) -> AbstractContextManager[object]:
            """Wait until no thread is in a call of the engine's collective, and let none enter during the block."""

        def end(self) -> None:
            """Note that all survivors have left the collective, so that no recovery makes it again."""

        def read_state(self, lost: tuple[int, ...]) -> dict[str, Any]:
            """Read this rank's state as plain values, after all survivors have stopped.

            `left` is True if this rank no longer takes part. `call` is a `WholeCall` or None. `fill` uses the rest.
            """

        def fill(self, states: list[dict[str, Any]], deadline: Deadline) -> None:
            """Receive the data that all survivors must share; collective. `states` are the states of all survivors."""

        def position(self) -> Any:
            """Return this rank's position in the collective, for a newcomer."""

        def take_position(self, position: Any) -> None:
            """On a newcomer, continue at the position of a survivor."""

        def remake(self, arguments: Any, deadline: Deadline) -> None:
            """Make the engine's collective again, without contributions; collective."""

        def resume(self) -> None:
            """Contribute the data that no completed round contains."""


__all__ = ["Membership"]

T = TypeVar("T")

NOT_FOR_NEWCOMERS = ["token_queue", "update_queue", "preduce"]
"""Services whose calls have no numbers, so that a new rank would not know the next one."""
RESUME_S = 60.0
"""Time limit from the agreement on the members until all have installed; longer than a newcomer's limit to join."""
GROUPS = -1
"""The number used for P-Reduces in groups that the program names, which no call creates."""
MOST_ENDED = 50
"""The maximum number of ended collectives that ranks forget at a time."""


@dataclass
class _Made:
    """A collective, and the function that makes its arguments."""

    arguments: Callable[[], Arguments]
    collective: Collective[Any]

    @property
    def recoverable(self) -> Recoverable:
        return self.collective.recoverable  # type: ignore[no-any-return]


def _owner_has_left() -> None:
    raise RuntimeError("its owner has left")


class Membership(WholeCalls):
    """The members of one communicator. `job` is None unless dead ranks are replaced.

    Attributes
    ----------
    members
        The live ranks, ascending, by their original numbers.
    epoch
        The number of times that the members have changed.
    is_recovering
        Whether a thread is in `recover`.
    is_installed
        Whether the newest recovery is complete. Otherwise the next call must repeat it.
    failed
        The error from which the survivors cannot recover; None if they can continue.
    """

    def __init__(self, comm: Communicator, context: Context, job: Job | None) -> None:
        super().__init__(comm, context)
        self._job = job
        self.members = tuple(range(comm.size)) if job is None else job.members
        self.epoch = 0 if job is None else job.epoch
        self.is_recovering = False
        self.failed: Exception | None = None
        self._callbacks: list[Callable[[MembershipChange], None]] = []
        self._changes: list[MembershipChange] = []  # changes that callbacks have not received
        self._turn = threading.RLock()
        self._shrinking: ShrunkCommunicator | ShrunkJob | None = None
        self._former: list[_core.Engine] = []  # engines whose boards other survivors may still read
        self._made: dict[int, _Made] = {}  # by number, in the order of creation
        self._creation: PendingCreation | None = None
        self._provides: list[Callable[[], Any]] = []
        self._joining: Joining | None = None  # on a rank that replaces a dead one, until it is installed
        self._joined: Joining | None = None  # after that, until its next creation
        self._starter = Starter()
        self._installed = self.members  # the members at the last `install`
        self.is_installed = True

    @property
    def is_joining(self) -> bool:
        """Whether this rank replaces a dead one and has not yet made all collectives and restored its state."""
        return self._joining is not None

    def make_if_open(self, service: str, name: str, make: Callable[[], object]) -> None:
        """On a joining rank, call `make` when the survivors' next open collective is this one."""
        assert self._joining is not None
        self._joining.make_if_open(service, name, make)

    def join(self) -> None:
        """On a newcomer, receive the list of collectives to make; collective."""
        assert self._job is not None
        self._joining, self.is_installed = Joining(self, self._context, self._job), False
        self._joining.begin()

    def state(self, provide: Callable[[], Any], restore: Callable[[Any], object]) -> None:
        if self._joining is not None:
            self._joining.restore(restore)
        if self._job is not None:
            pickle.dumps(provide())  # to find an error now instead of after a death
        self._provides.append(provide)

    def joined(self) -> None:
        """On a newcomer, let calls continue, after all ranks have made all collectives."""
        self._joined, self._joining = self._joining, None
        self._continue()

    def end_newcomer(self) -> None:
        """End the process if this rank is joining."""
        if self._joining is not None:
            self._joining.give_up(sys.exc_info()[1])

    def end(self) -> None:
        """Notify waiting spares that this rank makes no further calls."""
        self.end_newcomer()
        job = self._shrinking.job if isinstance(self._shrinking, ShrunkJob) else self._job
        self._starter.end()
        if job is not None:
            job.end()

    def on_change(self, callback: Callable[[MembershipChange], None]) -> None:
        self._callbacks.append(callback)

    def check_newcomers(self, call: str) -> None:
        """Raise ValueError if dead ranks are replaced, and their replacements could not take part in this call."""
        if self.replaces and call in NOT_FOR_NEWCOMERS:
            raise ValueError(
                f"{call}: expected neither spares nor respawn, since a new rank cannot tell which call is next; "
                "use partial_reduce or hop, whose steps have numbers"
            )

    @property
    def restores(self) -> bool:
        """Whether this rank replaces a dead one and its next call of `state` restores a state."""
        return self._joining is not None and self._joining.restores

    def drop_state(self, provide: Callable[[], Any]) -> None:
        """Drop the state that `provide` returns, because its owner has left. Later newcomers cannot join."""
        self._provides = [_owner_has_left if each == provide else each for each in self._provides]

    @property
    def replaces(self) -> bool:
        """Whether spares or new processes replace dead ranks."""
        return self._job is not None

    @property
    def respawns(self) -> bool:
        return self._job is not None and bool(self._job.respawn)

    def retry(self, action: Callable[[], T], deadline: Deadline) -> T:
        """Return the result of `action`; if a rank has died, recover and call it again."""
        while True:
            epoch = self.epoch
            try:
                self.check_installed()
                return action()
            except RankFailedError as error:
                failure = error
            self.recover(failure, epoch, deadline)

    # ------------------------------------------------------------------------------------------------ creation

    def make(self, creation: PendingCreation, make: Callable[[], T], deadline: Deadline) -> T:
        """Return the result of `make`, or of the recovery that completes the creation."""
        if self._joining is not None:
            return self._joining.make(creation)  # type: ignore[no-any-return]
        self._check_first(creation)
        stalled = self._creation if self._creation is not None and self._creation.has_stalled else None
        while True:
            epoch = self.epoch
            try:
                self.check_installed()
                made = make()
            except RankFailedError as error:
                failure = error
            except BaseException:
                self._creation = None
                raise
            else:
                self._creation = None
                return made
            try:
                self.recover(failure, epoch, deadline)
            except BaseException:
                if creation.number is not None:
                    creation.has_stalled = True  # the application may repeat this call
                raise
            for each in (stalled, creation):
                if each is not None and each.number in self._made:
                    self._creation = None
                    collective: Any = self._made[each.number].collective
                    return collective  # type: ignore[no-any-return]

    def _check_first(self, creation: PendingCreation) -> None:
        """End a newcomer whose first creation differs from the donor's, so that other ranks raise no MismatchError."""
        joined, self._joined = self._joined, None
        if joined is not None:
            joined.check_first(creation.call)

    def begin(self, creation: PendingCreation) -> None:
        creation.number = self._context.created
        self._creation = creation

    def check_installed(self) -> None:
        """Raise RankFailedError if a recovery was interrupted, or if new processes wait to join."""
        if not self.is_installed:
            raise RankFailedError(f"{self._comm.name}: a rank has died, and the survivors have not continued yet")
        if self._newcomers_wait:
            raise RankFailedError(f"{self._comm.name}: new processes wait to join")

    @property
    def _newcomers_wait(self) -> bool:
        return self._job is not None and self._job.is_lowest and self._starter.have_come(self._job)

    def enter(self, number: int, arguments: Callable[[], Arguments], collective: Collective[Any]) -> None:
        self._made[number] = _Made(arguments, collective)

    def confirm(self, call: str, deadline: Deadline) -> None:
        """Wait until all ranks have made a collective, before any rank contributes. Forget ended collectives."""
        ended = [number for number, made in self._made.items() if made.recoverable.ended][:MOST_ENDED]
        everywhere = set(ended).intersection(*map(set, self.gathered(ended, call, deadline)))
        for number in everywhere:
            del self._made[number]

    # ------------------------------------------------------------------------------------------------ recovery

    def recover(self, error: RankFailedError, epoch: int, deadline: Deadline) -> None:
        """Recover from `error`, which was raised in epoch `epoch`; collective over the survivors.

        Does nothing if another thread has recovered since.

        Raises
        ------
        StallError
            Some survivors make no call before the deadline. The next call tries again to recover.
        RuntimeError
            MPI cannot continue, or a collective cannot be made again.
        """
        with self._turn:
            if self.failed is not None:
                raise self.failed
            if self._joining is not None:
                self._joining.refuse()
            if self.epoch != epoch:
                return
            if self._newcomers_wait:
                self._comm._engine.stop_all()
            else:
                self._comm._engine.stop(list(error.ranks))
            self.is_recovering = True
            try:
                with contextlib.ExitStack() as all_stopped:
                    for each in [self._groups, *(made.recoverable for made in self._made.values())]:
                        all_stopped.enter_context(each.stopped())
                    self._recover(error, deadline)
            except (RankFailedError, RuntimeError, ValueError) as failure:
                if self._shrinking is None:
                    self.failed = failure
                raise
            finally:
                self.is_recovering = False
        while self._changes:
            change = self._changes.pop(0)
            for callback in self._callbacks:
                callback(change)

    def _recover(self, error: RankFailedError, deadline: Deadline) -> None:
        while True:
            change = self._shrink(error, deadline)
            began = time.monotonic()
            try:
                with interrupts_later():  # the others rely on this rank until all have installed
                    self._resume(change, Deadline(RESUME_S))
            except BaseException as failure:
                if self.is_installed and not isinstance(failure, RankFailedError):
                    raise  # an interrupt
                dead = list(failure.ranks) if isinstance(failure, RankFailedError) else []
                self._comm._engine.stop(dead)
                if not isinstance(failure, RankFailedError):
                    raise
                error = failure
            else:
                return
            finally:
                if change.joined:  # newcomers have their own limit
                    deadline.extend(time.monotonic() - began)

    def _shrink(self, error: RankFailedError, deadline: Deadline) -> MembershipChange:
        """Agree with the survivors on the members, and switch to their new communicator."""
        comm, former = self._comm, self.members
        if self._shrinking is None:
            self._shrinking = self._stopped([former[place] for place in error.ranks])
        new = self._shrinking.run(deadline)
        survivors = self._shrinking.survivors
        self.members = survivors
        joined: tuple[int, ...] = ()
        if isinstance(self._shrinking, ShrunkJob):
            self._job = self._shrinking.job
            self.members, joined = self._job.members, self._job.joined
        self._shrinking = None
        self.is_installed = False
        self.epoch += 1
        self._former += comm._engines
        comm._engine, comm._engines, comm._comm = new._engine, new._engines, new._comm
        self._context.move_to(new._context)
        open_communicators.pop(new, None)
        lost = tuple(rank for rank in former if rank not in survivors)
        change = MembershipChange(epoch=self.epoch, members=self.members, lost=lost, joined=joined)
        self._changes.append(change)
        return change

    def _stopped(self, dead: list[int]) -> ShrunkCommunicator | ShrunkJob:
        comm = self._comm
        words = Words(
            subject=f"{comm.name}: {describe_ranks(dead) if dead else 'a rank'} died, and the others continue",
            called="made a call on it",
            again="Repeat a call on this communicator to try again",
        )
        if self._job is None:
            return ShrunkCommunicator(comm, self.members, words)
        return ShrunkJob(self._job, comm._arguments, comm._made_within, words, comm._engines, self._starter)

    def _resume(self, change: MembershipChange, deadline: Deadline) -> None:
        context = self._context
        own = {number: made.recoverable.read_state(change.lost) for number, made in self._made.items()}
        of_groups = {} if self._job is not None else {GROUPS: self._groups.read_state(change.lost)}
        states = self.collected(own | of_groups, deadline)
        if of_groups:
            self._groups.fill([state.pop(GROUPS) for state in states], deadline)
            self._groups.remake(self._groups._arguments, deadline)
        donor = next(place for place, rank in enumerate(self.members) if rank not in change.joined)
        newcomers = [self.members.index(rank) for rank in change.joined] if context.rank == donor else []
        completed = {number for number, state in own.items() if state["left"] and state.get("call")}
        sender = Sender(context.engine, newcomers)
        try:
            if newcomers:
                calls = {n: described(self._checked(made)) for n, made in self._made.items() if n not in completed}
                pending, creation = None, self._creation
                if creation is not None and creation.number not in set().union(*states):
                    pending = creation.call
                elif creation is not None and creation.number is not None and creation.number not in self._made:
                    agreed = self._context.checked(creation.service, creation.arguments)
                    calls[creation.number] = described(agreed)
                is_closing = context.rendezvous.is_closing
                sender.send("plan", Plan(calls, context.created, pending, len(self._provides), is_closing))
                for provide in self._provides:
                    sender.send_state(provide)
            for number in sorted(set().union(*states)):
                of_all = [state[number] for state in states if number in state]
                self._remake(number, of_all, sender if newcomers and number not in completed else None, deadline)
            sender.wait(deadline)
            self.install(deadline)
        finally:
            sender.abandon()
        for engine in self._former:
            engine.abort()
        supersede(self._former)
        self._former.clear()
        self._continue()

    @property
    def _groups(self) -> ContinuingGroups:
        return self._context.part(ContinuingGroups)

    def _remake(self, number: int, of_all: list[dict[str, Any]], sender: Sender | None, deadline: Deadline) -> None:
        """Make a collective again from the survivors' states; collective. `sender` is None if there is no newcomer."""
        if all(state["left"] for state in of_all):
            if number in self._made:
                self._made.pop(number).recoverable.end()
            return
        if number not in self._made:
            if sender is not None:
                sender.send("position", None)  # no rank has used the collective
            self._join_creation(number, deadline)
            return
        made = self._made[number]
        made.recoverable.fill(of_all, deadline)
        if sender is not None:
            sender.send("position", made.recoverable.position())
        checked = self._checked(made)
        made.recoverable.remake(checked, deadline)
        made.collective._arguments = checked

    def _checked(self, made: _Made) -> Arguments:
        collective = made.collective
        return self._context.checked(collective.arguments.service, made.arguments, name=collective.name)

    def _continue(self) -> None:
        """Let calls continue, after all ranks have made all collectives."""
        for made in self._made.values():
            made.recoverable.resume()
        self.is_installed = True
        if self._job is not None:
            self._starter.note_installed(self._job, lost={*self._installed} - {*self.members})
        self._installed = self.members
        if self._context.rendezvous.is_closing:
            self._context.engine.leave()

    def install(self, deadline: Deadline) -> None:
        """Wait until all ranks have made all collectives; collective."""
        self._context.engine.compare(b"", what="recovery", timeout=deadline.remaining())

    def _join_creation(self, number: int, deadline: Deadline) -> None:
        """Complete a creation that other ranks had completed before the death."""
        creation = self._creation
        if creation is None or number != self._context.created:
            raise RuntimeError(f"{self._comm.name}: the survivors have made different collectives (a defect)")
        agreed = self._context.checked(creation.service, creation.arguments)
        self._context.enter(creation.build(agreed, deadline), creation.arguments)
