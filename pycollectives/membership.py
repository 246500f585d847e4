"""The members of a communicator with `on_failure="continue"`, and how they continue after a death.

A call that finds a rank dead recovers, in the application's thread, together with all survivors:

  stop      The engine stops, and no other thread is in a call of a collective. Nothing completes on this rank any more.
  shrink    The survivors agree on the members and make a communicator, with a new engine (agreement/shrinking.py).
  collect   Each rank tells the others how far each collective has come here.
  fill      If a round completed on some survivors only, one of them sends its result to the others.
  remake    Each collective is made anew, and takes over what this rank has not received.
  install   Once all survivors have remade all of it, each contributes again what no completed round contains.

A further death during these steps starts them again, on the newest communicator. Until `install` nothing is contributed
to a collective that is remade, so every rank may still forget it. A death after `install` finds all of them made.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from .agreement.shrinking import MAKING_S, Shrinking, supersede
from .at_exit import open_communicators
from .partial_reduce.means import reduced_by_members
from .support.errors import RankFailedError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from mpi4py import MPI

    from . import _core
    from .agreement.consistency import Signed
    from .arguments import Arguments
    from .collective import Collective
    from .communicator import Communicator
    from .context import Context
    from .support.deadline import Deadline
    from .support.typing import OnFailure

    class Continued(Protocol):
        """A collective that continues, as the members see it. The methods are called in this order."""

        @property
        def ended(self) -> bool:
            """Whether all ranks have left, and no data is pending."""

        def stopped(self) -> AbstractContextManager[object]:
            """Wait until no thread is in a call of the engine's side, and keep threads out of it for the block."""

        def freeze(self, lost: tuple[int, ...]) -> dict[str, Any]:
            """Read this rank's state, of plain values, after all survivors have stopped; `left`: it takes no part."""

        def fill(self, states: list[dict[str, Any]], deadline: Deadline) -> None:
            """Receive what other survivors have and this one lacks; collective. `states`: of all survivors, by rank."""

        def remake(self, arguments: Any, deadline: Deadline) -> None:
            """Make the engine's side anew; collective. Contribute nothing."""

        def resume(self) -> None:
            """Contribute what is not in a completed round."""


__all__ = ["Change", "Membership", "check_survives", "epoch", "members", "on_change", "on_failure"]

T = TypeVar("T")

CONTINUE = ("partial_allreduce",)
"""The services that continue after a death."""
AT_ONCE = 50
"""Collectives whose states fit in one text that ranks compare."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change of a communicator's members; `Communicator.on_change` passes it to callbacks.

    Attributes
    ----------
    epoch
        The number of the change, from 1.
    members
        The ranks that are members now, ascending.
    lost
        The ranks that have died, ascending.
    """

    epoch: int
    members: tuple[int, ...]
    lost: tuple[int, ...]


@dataclass
class _Made:
    """A collective, and what it was made of."""

    arguments: Callable[[], Arguments]
    collective: Collective[Any]
    continued: Continued


@dataclass
class _Creation:
    """A creation under way: the death may have come after other ranks have completed it."""

    arguments: Callable[[], Arguments]
    service: str
    build: Callable[[Any, Deadline], Any]


class Membership:
    """The members of one communicator.

    Attributes
    ----------
    members
        The live ranks, ascending, by the numbers that they had at first.
    epoch
        The number of changes.
    is_recovering
        Whether a thread is in `recover`.
    """

    def __init__(self, comm: Communicator, context: Context) -> None:
        """See the class."""
        self._comm = comm
        self._context = context
        self.members = tuple(range(comm.size))
        self.epoch = 0
        self._callbacks: list[Callable[[Change], None]] = []
        self._turn = threading.RLock()
        self.is_recovering = False
        self._shrinking: Shrinking | None = None
        self._former: list[_core.Engine] = []  # whose boards other survivors may still read
        self._made: dict[int, _Made] = {}  # by number, in the order of creation
        self._creation: _Creation | None = None
        self._broken: Exception | None = None  # the survivors cannot continue

    def on_change(self, callback: Callable[[Change], None]) -> None:
        """Register a callback for changes."""
        self._callbacks.append(callback)

    @property
    def broken(self) -> Exception | None:
        """Why the survivors cannot continue."""
        return self._broken

    def refuse(self, service: str) -> None:
        """Raise ValueError if a service does not continue after a death."""
        if service not in CONTINUE:
            raise ValueError(
                f"{service}: on_failure='continue' has only {', '.join(CONTINUE)}: make the communicator with "
                "on_failure='raise', and call shrink after a RankFailedError"
            )

    def run(self, action: Callable[[], T], deadline: Deadline) -> T:
        """Return the result of `action`; if a rank has died, recover and call it again."""
        while True:
            epoch = self.epoch
            try:
                return action()
            except RankFailedError as error:
                failure = error
            self.recover(failure, epoch, deadline)

    def is_same(self, of: Signed, timeout: float | None) -> bool:
        """Return whether a signature is the same on all members; collective."""
        digest = hashlib.blake2b(repr(of.signature()).encode(), digest_size=16).digest()
        values = np.frombuffer(digest, np.uint64)
        least = reduced_by_members(self._comm, np.concatenate([values, ~values]), "MIN", timeout)
        return bool((least[:2] == ~least[2:]).all())

    # ------------------------------------------------------------------------------------------------ creation

    def make(
        self,
        service: str,
        arguments: Callable[[], Arguments],
        build: Callable[[Any, Deadline], Any],
        make: Callable[[], T],
        deadline: Deadline,
    ) -> T:
        """Return the result of `make`, a creation of a collective by `build`, or of the recovery that completes it."""
        number = self._context.created
        self._creation = _Creation(arguments, service, build)
        try:
            while True:
                epoch = self.epoch
                try:
                    return make()
                except RankFailedError as error:
                    failure = error
                self.recover(failure, epoch, deadline)
                if number in self._made:
                    made: Any = self._made[number].collective
                    return made  # type: ignore[no-any-return]
        finally:
            self._creation = None

    def enter(self, number: int, arguments: Callable[[], Arguments], collective: Collective[Any]) -> None:
        """Note a collective that was made."""
        self._made = {number: made for number, made in self._made.items() if not made.continued.ended}
        self._made[number] = _Made(arguments, collective, collective.continued)

    # ------------------------------------------------------------------------------------------------ recovery

    def recover(self, error: RankFailedError, epoch: int, deadline: Deadline) -> None:
        """Continue with the survivors after `error`, which was raised in an epoch; collective over them.

        Does nothing if another thread has done it meanwhile.

        Raises
        ------
        StallError
            Some survivors make no call within the deadline. The next call continues.
        RuntimeError
            MPI cannot continue, or a collective cannot be made anew.
        """
        changes: list[Change] = []
        with self._turn:
            if self._broken is not None:
                raise self._broken
            if self.epoch != epoch:
                return
            self._comm._engine.stop(list(error.ranks))
            self.is_recovering = True
            try:
                with contextlib.ExitStack() as all_stopped:
                    for made in self._made.values():
                        all_stopped.enter_context(made.continued.stopped())
                    self._recover(changes, deadline)
            except (RankFailedError, RuntimeError, ValueError) as failure:
                if self._shrinking is None:
                    self._broken = failure
                raise
            finally:
                self.is_recovering = False
        for change in changes:
            for callback in self._callbacks:
                callback(change)

    def _recover(self, changes: list[Change], deadline: Deadline) -> None:
        while True:
            changes.append(self._shrink(deadline))
            try:
                self._resume(changes[-1].lost, deadline.at_least(MAKING_S))
            except RankFailedError as error:
                self._comm._engine.stop(list(error.ranks))
            else:
                return

    def _shrink(self, deadline: Deadline) -> Change:
        """Agree with the survivors on the members, and take over their communicator."""
        if self._shrinking is None:
            self._shrinking = Shrinking(_Stopped(self._comm), self.members)
        new = self._shrinking.run(deadline)
        former = self.members
        self.members = tuple(former[position] for position in self._shrinking.members)
        self._shrinking = None
        self.epoch += 1
        comm = self._comm
        self._former += comm._engines
        comm._engine, comm._engines, comm._comm = new._engine, new._engines, new._comm
        self._context.move_to(new._context)
        open_communicators.pop(new, None)
        lost = tuple(rank for rank in former if rank not in self.members)
        return Change(epoch=self.epoch, members=self.members, lost=lost)

    def _resume(self, lost: tuple[int, ...], deadline: Deadline) -> None:
        context = self._context
        local = {number: made.continued.freeze(lost) for number, made in self._made.items()}
        states, count = self._collected(local, deadline)
        for number in range(count):
            of_all = [state[number] for state in states if number in state]
            if all(state["left"] for state in of_all):
                self._made.pop(number, None)
                continue
            if number not in self._made:
                self._join_creation(number, deadline)
                continue
            made = self._made[number]
            made.continued.fill(of_all, deadline)
            of = made.collective
            arguments = context.checked(of.arguments.service, made.arguments, name=of.name)
            made.continued.remake(arguments, deadline)
            of._arguments = arguments
        context.engine.compare(b"", what="recovery", timeout=deadline.remaining())
        for engine in self._former:
            engine.abort()
        supersede(self._former)
        self._former.clear()
        for made in self._made.values():
            made.continued.resume()
        if context.rendezvous.is_closing:
            context.engine.leave()

    def _join_creation(self, number: int, deadline: Deadline) -> None:
        """Complete a creation that was complete on other ranks when the death came."""
        creation = self._creation
        if creation is None or number != self._context.created:
            raise RuntimeError(f"{self._comm.name}: the survivors have not made the same collectives")
        agreed = self._context.checked(creation.service, creation.arguments)
        self._context.enter(creation.build(agreed, deadline), creation.arguments)

    def _collected(
        self, local: dict[int, dict[str, Any]], deadline: Deadline
    ) -> tuple[list[dict[int, dict[str, Any]]], int]:
        """Return the states of all survivors, by rank and number, and the number of collectives made anywhere."""
        engine = self._context.engine
        counts = self._compared({"made": self._context.created}, deadline)
        count = max(each["made"] for each in counts)
        states: list[dict[int, dict[str, Any]]] = [{} for _ in range(engine.size)]
        for first in range(0, count, AT_ONCE):
            part = {number: local[number] for number in range(first, min(first + AT_ONCE, count)) if number in local}
            for rank, received in enumerate(self._compared(part, deadline)):
                states[rank].update({int(number): state for number, state in received.items()})
        return states, count

    def _compared(self, local: dict[Any, Any], deadline: Deadline) -> list[dict[str, Any]]:
        """Return the texts of all survivors, by rank."""
        text = json.dumps(local, separators=(",", ":"), sort_keys=True)
        engine = self._context.engine
        texts = engine.compare(text.encode(), what="recovery", timeout=deadline.remaining())
        if texts is None:
            return [json.loads(text)] * engine.size
        return [json.loads(each) for each in texts]


# ---------------------------------------------------------------------------------------------- of a communicator


def check_survives(engine: _core.Engine) -> None:
    """Raise RuntimeError unless MPI continues after deaths."""
    if engine.acknowledge_failed() is None:
        raise RuntimeError(
            "on_failure='continue': this MPI cannot continue after a death: use Open MPI 5, and start the job with "
            "mpirun --with-ft ulfm"
        )


def on_failure(comm: Communicator) -> OnFailure:
    """What a rank's death does: "raise" or "continue"."""
    return "raise" if comm._membership is None else "continue"


def members(comm: Communicator) -> tuple[int, ...]:
    """The live ranks, ascending. They change only with `on_failure="continue"`; ranks keep their numbers."""
    return tuple(range(comm.size)) if comm._membership is None else comm._membership.members


def epoch(comm: Communicator) -> int:
    """The number of changes of the members."""
    return 0 if comm._membership is None else comm._membership.epoch


def on_change(comm: Communicator, callback: Callable[[Change], None]) -> None:
    """Register a callback for changes of the members, with `on_failure="continue"`.

    Each member calls it in the application's thread, within the call that continues after a death.

    Parameters
    ----------
    callback
        A function of a `pycollectives.membership.Change`.

    Raises
    ------
    RuntimeError
        The communicator was made with `on_failure="raise"`.
    """
    if comm._membership is None:
        raise RuntimeError("on_change: the members never change with on_failure='raise'")
    comm._membership.on_change(callback)


class _Stopped:
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
