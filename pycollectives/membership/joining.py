"""How a rank that replaces a dead one joins the survivors.

Its program runs from the beginning. Each of its calls that create a collective makes one of those that are open on the
survivors, in their order, and takes over the rounds that the lowest survivor has received. `Communicator.state`
restores the state of that survivor. The survivors wait. A rank that cannot join ends its process: to the
survivors, another rank has died.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
import traceback
from collections import deque
from typing import TYPE_CHECKING, Any, NoReturn

from ..support.deadline import Deadline
from ..support.errors import RankFailedError, StallError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mpi4py import MPI

    from .. import _core
    from ..arguments import Arguments
    from ..context import Context, PendingCreation
    from .job import Job
    from .members import Membership

__all__ = ["Joining", "States", "described"]

JOIN_S = 60.0
"""Time limit of each call of a rank that joins."""
PAUSE_S = 0.2e-3
"""Between looks for messages."""
PART = 1 << 30
"""The most bytes of a message."""


def described(arguments: Arguments) -> dict[str, Any]:
    """Describe a collective, to compare it with the one that a newcomer makes."""
    return {"call": arguments.service, **arguments.signature()}


class States:
    """The functions that provide the state of this rank, and the messages to newcomers.

    Attributes
    ----------
    provides
        The functions, in the order of `Communicator.state`.
    """

    def __init__(self) -> None:
        """See the class."""
        self.provides: list[Callable[[], Any]] = []
        self._sending: list[MPI.Request] = []

    def send(self, engine: _core.Engine, newcomers: Sequence[int]) -> None:
        """Send all states to newcomers, given by their places among the members, without waiting."""
        from ..support.native import MPI

        self._sending.clear()
        mpi = _messages_of(engine)
        for provide in self.provides:
            data = memoryview(pickle.dumps(provide(), protocol=5))
            parts = [data[start : start + PART] for start in range(0, len(data), PART)]
            length = len(data).to_bytes(8, "little")
            for newcomer in newcomers:
                for part in (length, *parts):
                    self._sending.append(mpi.Isend([part, MPI.BYTE], newcomer, _tag()))

    def wait(self, engine: _core.Engine, deadline: Deadline) -> None:
        """Wait until all have been sent."""
        for request in self._sending:
            _complete(request, engine, deadline)
        self._sending.clear()


class Joining:
    """The steps of a rank that replaces a dead one; `Membership._resume` has the steps of the survivors."""

    def __init__(self, membership: Membership, context: Context, job: Job) -> None:
        """See the class."""
        self._membership = membership
        self._context = context
        self._newcomers = job.joined
        self._collectives: deque[int] = deque()  # the numbers of those to make
        self._states_left = 0
        self._created = 0
        self._of: dict[int, list[dict[str, Any]]] = {}  # the survivors' states of each collective
        self._donor = 0
        self._donor_has: set[int] = set()

    def begin(self) -> None:
        """Ask the survivors for their open collectives."""
        with _Ends(self._subject):
            deadline = Deadline(JOIN_S)
            states = self._membership.collected({}, deadline)
            members = self._membership.members
            self._donor = next(place for place, rank in enumerate(members) if rank not in self._newcomers)
            counts = self._membership.gathered([0, 0], "recovery", deadline)
            self._created, self._states_left = counts[self._donor]
            self._donor_has = set(states[self._donor])
            for number in sorted(set().union(*states)):
                self._of[number] = [state[number] for state in states if number in state]
            self._collectives.extend(n for n, of_all in self._of.items() if not all(one["left"] for one in of_all))
            self._continue()

    def make(self, creation: PendingCreation) -> Any:
        """Make the next of the survivors' collectives by a call of the application."""
        with _Ends(self._subject):
            if not self._collectives:
                self.refuse()
            number = self._collectives.popleft()
            of_all, deadline = self._of[number], Deadline(JOIN_S)
            self._context.created = number
            arguments = self._context.checked(creation.service, creation.arguments)
            expected = next((state["call"] for state in of_all if "call" in state), None)
            if expected not in (None, described(arguments)):
                raise RuntimeError(f"expected the collective of the survivors, {expected}; got {described(arguments)}")
            collective = self._context.enter(creation.build(arguments, deadline), creation.arguments)
            recoverable = collective.recoverable
            recoverable.fill(of_all, deadline)
            if number in self._donor_has:
                recoverable.introduce(self._donor, deadline)
            recoverable.remake(arguments, deadline)
            self._continue()
            return collective

    def restore(self, restore: Callable[[Any], object]) -> None:
        """Restore the next of the donor's states."""
        with _Ends(self._subject):
            if self._states_left == 0:
                return
            engine, deadline = self._context.engine, Deadline(JOIN_S)
            length = int.from_bytes(self._received(8, engine, deadline), "little")
            data = bytearray()
            while len(data) < length:
                data += self._received(min(PART, length - len(data)), engine, deadline)
            restore(pickle.loads(data))
            self._states_left -= 1
            self._continue()

    def _received(self, length: int, engine: _core.Engine, deadline: Deadline) -> bytearray:
        from ..support.native import MPI

        data = bytearray(length)
        _complete(_messages_of(engine).Irecv([data, MPI.BYTE], self._donor, _tag()), engine, deadline)
        return data

    def _continue(self) -> None:
        """Join, if all collectives are made and all states are restored."""
        if self._collectives or self._states_left:
            return
        self._context.created = self._created
        self._membership.install(Deadline(JOIN_S))
        self._membership.installed()

    def refuse(self) -> NoReturn:
        """End the process because of a call that comes too early."""
        missing = [self._name_of(number) for number in self._collectives]
        missing += ["Communicator.state"] * self._states_left
        with _Ends(self._subject):
            raise RuntimeError(f"expected first the calls that the survivors have made: {', then '.join(missing)}")

    def _name_of(self, number: int) -> str:
        made: dict[str, Any] = next((state["call"] for state in self._of[number] if "call" in state), {})
        return "{call} {name!r}".format_map({"call": "a collective", "name": number, **made})

    @property
    def _subject(self) -> str:
        comm = self._context.communicator
        return f"{comm.name}: rank {comm.rank}, which replaces a dead rank"


class _Ends:
    """Ends the process if the block raises: the survivors, which wait for this rank, continue without it."""

    def __init__(self, subject: str) -> None:
        self._subject = subject

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, where: object) -> None:
        if error is None:
            return
        if not isinstance(error, RankFailedError):
            traceback.print_exception(error)
        print(f"pycollectives: {self._subject}, cannot join the others and ends: {error}", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGKILL)  # to MPI, a process that exits is not dead


def _messages_of(engine: _core.Engine) -> MPI.Comm:
    mpi = engine.mpi_duplicate()
    assert mpi is not None
    return mpi


def _complete(request: MPI.Request, engine: _core.Engine, deadline: Deadline) -> None:
    """Wait for a message; RankFailedError if a rank has died."""
    while not request.Test():
        engine.check_usable()
        if deadline.passed:
            raise StallError("the state of the program was not sent in time")
        time.sleep(PAUSE_S)


def _tag() -> int:
    from ..support.native import MPI

    return (MPI.COMM_WORLD.Get_attr(MPI.TAG_UB) or 32767) - 1  # the engine's tags are lower
