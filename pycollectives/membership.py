"""The members of a communicator with `on_failure="continue"`, and how they continue after a death.

A call that finds a dead rank recovers, in the application's thread, together with all survivors:

  stop      The engine stops, and no thread is in a call of a collective. Nothing completes on this rank from now on.
  shrink    The survivors agree on the members and make a communicator, with a new engine (agreement/shrinking.py).
  collect   Each rank sends its state of each collective to the others, such as the number of completed rounds.
  fill      If a round completed on some survivors only, one of them sends its result to the others.
  remake    Each collective is made again, and takes over the results that this rank has not received.
  install   When all survivors have made all of them, each contributes again the data that no completed round contains.

After a further death during these steps they begin again, on the newest communicator. Before `install` nothing is
contributed to a new collective, so every rank can discard it. After `install`, all survivors have made all collectives.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from .agreement.consistency import describe_ranks
from .agreement.shrinking import Shrinking, Words, supersede
from .at_exit import open_communicators
from .partial_allreduce.arguments import PartialAllreduceArguments
from .partial_allreduce.collective import PartialAllreduce
from .support.deadline import Deadline
from .support.errors import RankFailedError
from .support.interrupts import interrupts_later
from .support.launchers import FAULT_TOLERANT, is_fault_tolerant

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from mpi4py import MPI

    from . import _core
    from .arguments import Arguments
    from .collective import Collective
    from .communicator import Communicator
    from .context import Context, PendingCreation
    from .support.typing import Array, OnFailure, Op

    class Recoverable(Protocol):
        """A collective that continues, as the members see it. The methods are called in this order."""

        @property
        def ended(self) -> bool:
            """Whether all ranks have left, and no data is pending."""

        def stopped(self) -> AbstractContextManager[object]:
            """Wait until no thread is in a call of the engine's side, and keep threads out of it for the block."""

        def end(self) -> None:
            """Note that all survivors have left, so that it is not made again."""

        def read_state(self, lost: tuple[int, ...]) -> dict[str, Any]:
            """Read this rank's state as plain values, after all survivors have stopped.

            `left` is True if it takes no part. The rest is for `fill`.
            """

        def fill(self, states: list[dict[str, Any]], deadline: Deadline) -> None:
            """Take over what all survivors must have in common; collective. `states`: of all survivors."""

        def remake(self, arguments: Any, deadline: Deadline) -> None:
            """Make the engine's side again, without contributions; collective."""

        def resume(self) -> None:
            """Contribute the data that no completed round contains."""


__all__ = [
    "Membership",
    "MembershipChange",
    "check_fault_tolerant",
    "close_engine",
    "epoch",
    "members",
    "on_change",
    "on_failure",
]

T = TypeVar("T")

CONTINUING = ["partial_allreduce", "partial_reduce", "neighbor_averaging", "push_sum", "pairwise_averaging", "hop"]
RESUME_S = 60.0
"""Time limit from the agreement on the members until all have installed; all are in this call by then."""
STATES_PER_MESSAGE = 50
"""Of collectives, whose states fit into one text that ranks compare."""


@dataclass(frozen=True, kw_only=True)
class MembershipChange:
    """A change of a communicator's members; `Communicator.on_change` passes it to callbacks.

    Attributes
    ----------
    epoch
        The number of the change, from 1.
    members
        The ranks that are members now, ascending.
    lost
        The ranks that died in this change, ascending.
    """

    epoch: int
    members: tuple[int, ...]
    lost: tuple[int, ...]


@dataclass
class _Made:
    """A collective, and the function that makes its arguments."""

    arguments: Callable[[], Arguments]
    collective: Collective[Any]

    @property
    def recoverable(self) -> Recoverable:
        return self.collective.recoverable  # type: ignore[no-any-return]


class Membership:
    """The members of one communicator.

    Attributes
    ----------
    members
        The live ranks, ascending, by their original numbers.
    epoch
        The number of changes.
    is_recovering
        Whether a thread is in `recover`.
    is_installed
        Whether the newest recovery is complete. Otherwise the next call must repeat it.
    failed
        The error that the survivors cannot recover from; None if they can continue.
    """

    def __init__(self, comm: Communicator, context: Context) -> None:
        """See the class."""
        self._comm = comm
        self._context = context
        self.members = tuple(range(comm.size))
        self.epoch = 0
        self.is_recovering = False
        self.failed: Exception | None = None
        self._callbacks: list[Callable[[MembershipChange], None]] = []
        self._changes: list[MembershipChange] = []  # that callbacks have not received
        self._turn = threading.RLock()
        self._shrinking: Shrinking | None = None
        self._former: list[_core.Engine] = []  # whose boards other survivors may still read
        self._made: dict[int, _Made] = {}  # by number, in the order of creation
        self._creation: PendingCreation | None = None
        self.is_installed = True

    def on_change(self, callback: Callable[[MembershipChange], None]) -> None:
        """Register a callback for changes."""
        self._callbacks.append(callback)

    def refuse(self, call: str) -> None:
        """Raise ValueError if a service does not continue after a death."""
        if call not in CONTINUING:
            raise ValueError(
                f"{call}: expected {', '.join(CONTINUING)}, mean, agree or is_same_on_all_ranks with "
                "on_failure='continue'; "
                "otherwise use on_failure='raise', and call shrink after a RankFailedError"
            )

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

    # ------------------------------------------------------------------------------------------------ whole calls

    def reduce(self, call: str, make: Callable[[], Array], op: Op, timeout: float | None = None) -> Array:
        """Return the reduction of an array over the members; collective. `make` checks and returns this rank's array.

        If `make` raises, this rank raises that error, and the others `MismatchError`.
        """
        deadline = self._context.rendezvous.deadline if timeout is None else self._context.deadline_of(timeout)
        arrays: list[Array] = []

        def arguments() -> PartialAllreduceArguments:
            self._context.limit(timeout)
            arrays[:] = [make()]
            return PartialAllreduceArguments(arrays[0], op=op, policy="full", missed="latest", name=call)

        made = PartialAllreduce.make(self._context, arguments, call=call, timeout=deadline.remaining())
        try:
            result, _ = made.allreduce(arrays[0], timeout=deadline.remaining())
        finally:
            made.leave()
        return result

    def is_same(self, call: str, make: Callable[[], bytes], timeout: float | None) -> bool:
        """Return whether a text is the same on all members; collective."""

        def digest() -> Array:
            values = np.frombuffer(hashlib.blake2b(make(), digest_size=16).digest(), np.uint64)
            return np.concatenate([values, ~values])

        least = self.reduce(call, digest, "MIN", timeout)
        return bool((least[:2] == ~least[2:]).all())

    def compare(self, local: bytes, /, *, what: str, timeout: float | None = None) -> list[bytes] | None:
        """See `agreement.consistency.Exchange`. A dead rank counts as one with this rank's text."""
        if self.is_same(what, lambda: local, timeout):
            return None
        longest = int(self.reduce(what, lambda: np.array([len(local)]), "MAX", timeout)[0])
        own = np.zeros((self._comm.size, 1 + longest), np.uint8)
        own[self._comm.rank, : len(local) + 1] = [*local, 1]  # the 1 ends it
        texts = [bytes(row).rstrip(b"\0")[:-1] for row in self.reduce(what, lambda: own, "BOR", timeout)]
        return [text or local for text in texts]

    # ------------------------------------------------------------------------------------------------ creation

    def make(self, creation: PendingCreation, make: Callable[[], T], deadline: Deadline) -> T:
        """Return the result of `make`, or of the recovery that completes the creation."""
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
                    creation.has_stalled = True  # this call may be repeated
                raise
            for each in (stalled, creation):
                if each is not None and each.number in self._made:
                    self._creation = None
                    collective: Any = self._made[each.number].collective
                    return collective  # type: ignore[no-any-return]

    def begin(self, creation: PendingCreation) -> None:
        """Note a creation that has the turn of its communicator."""
        creation.number = self._context.created
        self._creation = creation

    def check_installed(self) -> None:
        """Raise RankFailedError if a recovery was interrupted."""
        if not self.is_installed:
            raise RankFailedError(f"{self._comm.name}: a rank has died, and the survivors have not continued yet")

    def enter(self, number: int, arguments: Callable[[], Arguments], collective: Collective[Any]) -> None:
        """Note a collective that was made."""
        self._made[number] = _Made(arguments, collective)

    def confirm(self, call: str, deadline: Deadline) -> None:
        """Wait until all ranks have made a collective, since no rank may contribute earlier. Forget ended ones."""
        ended = [number for number, made in self._made.items() if made.recoverable.ended][:STATES_PER_MESSAGE]
        everywhere = set(ended).intersection(*map(set, self._gathered(ended, call, deadline)))
        for number in everywhere:
            del self._made[number]

    # ------------------------------------------------------------------------------------------------ recovery

    def recover(self, error: RankFailedError, epoch: int, deadline: Deadline) -> None:
        """Continue with the survivors after `error`, which was raised in an epoch; collective over them.

        Does nothing if another thread has recovered since.

        Raises
        ------
        StallError
            Some survivors make no call within the deadline. The next call tries again.
        RuntimeError
            MPI cannot continue, or a collective cannot be made again.
        """
        with self._turn:
            if self.failed is not None:
                raise self.failed
            if self.epoch != epoch:
                return
            self._comm._engine.stop(list(error.ranks))
            self.is_recovering = True
            try:
                with contextlib.ExitStack() as all_stopped:
                    for made in list(self._made.values()):
                        all_stopped.enter_context(made.recoverable.stopped())
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
            lost = self._shrink(error, deadline)
            try:
                with interrupts_later():  # the others count on this rank until all have installed
                    self._resume(lost, Deadline(RESUME_S))
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

    def _shrink(self, error: RankFailedError, deadline: Deadline) -> tuple[int, ...]:
        """Agree with the survivors on the members, and take over their communicator. Return the ranks that died."""
        comm, former = self._comm, self.members
        if self._shrinking is None:
            dead = [former[position] for position in error.ranks]
            words = Words(
                subject=f"{comm.name}: {describe_ranks(dead) if dead else 'a rank'} died, and the others continue",
                called="made a call on it",
                again="Repeat a call on this communicator to try again",
            )
            self._shrinking = Shrinking(_StoppedCommunicator(comm), former, words)
        new = self._shrinking.run(deadline)
        self.members = tuple(former[position] for position in self._shrinking.members)
        self._shrinking = None
        self.is_installed = False
        self.epoch += 1
        self._former += comm._engines
        comm._engine, comm._engines, comm._comm = new._engine, new._engines, new._comm
        self._context.move_to(new._context)
        open_communicators.pop(new, None)
        lost = tuple(rank for rank in former if rank not in self.members)
        self._changes.append(MembershipChange(epoch=self.epoch, members=self.members, lost=lost))
        return lost

    def _resume(self, lost: tuple[int, ...], deadline: Deadline) -> None:
        context = self._context
        own = {number: made.recoverable.read_state(lost) for number, made in self._made.items()}
        states = self._collected(own, deadline)
        for number in sorted(set().union(*states)):
            of_all = [state[number] for state in states if number in state]
            if all(state["left"] for state in of_all):
                if number in self._made:
                    self._made.pop(number).recoverable.end()
            elif number in self._made:
                collective, arguments = self._made[number].collective, self._made[number].arguments
                recoverable = self._made[number].recoverable
                recoverable.fill(of_all, deadline)
                checked = context.checked(collective.arguments.service, arguments, name=collective.name)
                recoverable.remake(checked, deadline)
                collective._arguments = checked
            else:
                self._join_creation(number, deadline)
        context.engine.compare(b"", what="recovery", timeout=deadline.remaining())
        for engine in self._former:
            engine.abort()
        supersede(self._former)
        self._former.clear()
        for made in self._made.values():
            made.recoverable.resume()
        self.is_installed = True
        if context.rendezvous.is_closing:
            context.engine.leave()

    def _join_creation(self, number: int, deadline: Deadline) -> None:
        """Complete a creation that was complete on other ranks when the death came."""
        creation = self._creation
        if creation is None or number != self._context.created:
            raise RuntimeError(f"{self._comm.name}: the survivors have not made the same collectives (a defect)")
        agreed = self._context.checked(creation.service, creation.arguments)
        self._context.enter(creation.build(agreed, deadline), creation.arguments)

    def _collected(self, local: dict[int, dict[str, Any]], deadline: Deadline) -> list[dict[int, dict[str, Any]]]:
        """Return the states of all survivors, by rank and number."""
        count = max(self._gathered(len(local), "recovery", deadline))
        states: list[dict[int, dict[str, Any]]] = [{} for _ in self.members]
        own = list(local.items())
        for first in range(0, count, STATES_PER_MESSAGE):
            part = own[first : first + STATES_PER_MESSAGE]
            for rank, received in enumerate(self._gathered(part, "recovery", deadline)):
                states[rank].update(received)
        return states

    def _gathered(self, local: T, what: str, deadline: Deadline) -> list[T]:
        """Return the values of all members, by rank; collective."""
        text = json.dumps(local, separators=(",", ":")).encode()
        texts = self._context.engine.compare(text, what=what, timeout=deadline.remaining())
        return [local] * len(self.members) if texts is None else [json.loads(each) for each in texts]


# ---------------------------------------------------------------------------------------------- of a communicator


def check_fault_tolerant(engine: _core.Engine) -> None:
    """Raise RuntimeError unless the job continues after deaths, or has no other rank."""
    if engine.size == 1:
        return
    if engine.acknowledge_failed() is None or not is_fault_tolerant():
        raise RuntimeError(
            "on_failure='continue': this job ends when a rank dies; start it by Open MPI 5, with "
            f"mpirun --with-ft ulfm --mca async_mpi_finalize 1 (which sets {FAULT_TOLERANT}=1)"
        )


def close_engine(comm: Communicator, deadline: Deadline) -> None:
    """Close the engine of a communicator; collective. After a death continue, unless all ranks have closed."""

    def close() -> None:
        engine = comm._engine
        try:
            engine.close(timeout=deadline.remaining())
        except RankFailedError:
            if comm._membership is None or not engine.all_closed:
                raise

    if comm._membership is None:
        close()
    else:
        comm._membership.retry(close, deadline)


def on_failure(comm: Communicator) -> OnFailure:
    """The effect of a rank's death: "raise" or "continue"."""
    return "raise" if comm._membership is None else "continue"


def members(comm: Communicator) -> tuple[int, ...]:
    """The live ranks, ascending. They change only with `on_failure="continue"`; ranks keep their numbers."""
    return tuple(range(comm.size)) if comm._membership is None else comm._membership.members


def epoch(comm: Communicator) -> int:
    """The number of changes of the members."""
    return 0 if comm._membership is None else comm._membership.epoch


def on_change(comm: Communicator, callback: Callable[[MembershipChange], None]) -> None:
    """Register a callback for changes of the members, with `on_failure="continue"`.

    Each member calls it in the application's thread, within the call that continues after a death. It must not raise.

    Parameters
    ----------
    callback
        A function of a `pycollectives.membership.MembershipChange`.

    Raises
    ------
    TypeError
        `callback` is no function.
    RuntimeError
        The communicator was made with `on_failure="raise"`.
    """
    if not callable(callback):
        raise TypeError(f"on_change: expected a function of a MembershipChange, got {callback!r}")
    if comm._membership is None:
        raise RuntimeError("on_change: the members never change with on_failure='raise'")
    comm._membership.on_change(callback)


class _StoppedCommunicator:
    """A communicator whose engine has stopped, as `Shrinking` uses it. Its boards are still read."""

    def __init__(self, comm: Communicator) -> None:
        self._comm = comm
        self._engine, self._engines, self._arguments = comm._engine, comm._engines, comm._arguments
        self.rank = self._engine.rank
        self.size = self._engine.size
        self.name = comm.name

    def abort(self) -> None:
        """Leave the collectives as they are."""

    def _made_within(self, comm: MPI.Comm, limit: float | None, arguments: tuple[Any, ...]) -> Communicator:
        return self._comm._made_within(comm, limit, arguments)
