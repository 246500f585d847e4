"""How a rank that replaces a dead one joins the survivors.

The newcomer's program runs from the beginning, while the survivors wait. Each of its calls that create a collective
makes the next of the survivors' open collectives, and continues at the position of the donor, the lowest survivor.
`Communicator.state` restores the donor's state. A rank that cannot join ends its process, which the survivors see as
another death.
"""

from __future__ import annotations

import contextlib
import pickle
import threading
import time
from collections import defaultdict, deque
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from ..agreement.deaths import follows_death
from ..agreement.shrinking import tag_of_survivors
from ..partial_allreduce.collective import PartialAllreduce
from ..support.deadline import Deadline
from ..support.errors import RankFailedError, StallError
from .respawning import JOIN_S, end_process
from .whole_calls import WholeCall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mpi4py import MPI

    from .. import _core
    from ..arguments import Arguments
    from ..context import Context, PendingCreation
    from .job import Job
    from .members import Membership

__all__ = ["Joining", "NotProvidedError", "Plan", "Sender", "described"]

PAUSE_S = 0.2e-3
"""Pause between looks for messages."""
PART = 1 << 30
"""The maximum size of a message in bytes."""

_abandoned: list[MPI.Request] = []
"""Sends to ranks that have died. MPI may read their buffers after the communicator is deleted."""


class NotProvidedError(Exception):
    """The donor sends this error in place of its state, if its program has failed to provide the state."""


class Plan(NamedTuple):
    """The collectives that a newcomer must make, and the states that it must restore."""

    calls: dict[int, dict[str, Any]]  # the donor's open collectives: descriptions by number
    created: int  # the number of collectives that the donor has created
    pending: str | None  # the donor's call that is creating a collective which no rank has created yet
    states: int
    is_closing: bool  # whether the donor is closing the communicator


def described(arguments: Arguments) -> dict[str, Any]:
    """Describe a collective, for comparison with the one that a newcomer makes."""
    return {"call": arguments.service, **arguments.signature()}


class Sender:
    """Sends the donor's messages to newcomers. On other ranks, or without newcomers, it sends nothing.

    A message is a kind and a value. Messages of the same kind are received in the order in which they are sent.
    """

    def __init__(self, engine: _core.Engine, newcomers: Sequence[int]) -> None:
        self._engine = engine
        self._newcomers = newcomers  # ranks of the engine
        self._sending: list[MPI.Request] = []

    def send(self, kind: str, value: object) -> None:
        """Send a message to all newcomers, without waiting."""
        from ..support.native import MPI

        if not self._newcomers:
            return
        mpi = _messages_of(self._engine)
        data = memoryview(pickle.dumps((kind, value), protocol=5))
        length = len(data).to_bytes(8, "little")
        parts = [data[start : start + PART] for start in range(0, len(data), PART)]
        for newcomer in self._newcomers:
            for part in (length, *parts):
                try:
                    self._sending.append(mpi.Isend([part, MPI.BYTE], newcomer, tag_of_survivors()))
                except MPI.Exception as error:
                    _raise_death(error)

    def send_state(self, provide: Callable[[], Any]) -> None:
        """Send the program's state, or a `NotProvidedError`."""
        try:
            value = provide()
            pickle.dumps(value)
        except Exception as error:  # an error of the program: only the newcomer ends
            text = f"Communicator.state: `provide` failed on a survivor: {type(error).__name__}: {error}"
            value = NotProvidedError(text)
        self.send("state", value)

    def wait(self, deadline: Deadline) -> None:
        for request in self._sending:
            _complete(request, self._engine, deadline)

    def abandon(self) -> None:
        """Keep the buffers of messages that may still be in transit."""
        _abandoned.extend(self._sending)


class Joining:
    """The steps of a rank that replaces a dead one; see `Membership._resume` for the steps of the survivors."""

    def __init__(self, membership: Membership, context: Context, job: Job) -> None:
        comm = context.communicator
        self._subject = f"{comm.name}: rank {comm.rank}, which replaces a dead rank"
        self._membership = membership
        self._context = context
        self._donor = next(place for place, rank in enumerate(job.members) if rank not in job.joined)
        self._collectives: deque[int] = deque()  # the numbers of the collectives to make
        self._of: dict[int, list[dict[str, Any]]] = {}  # the survivors' states of each collective
        self._plan = Plan({}, 0, None, 0, is_closing=False)
        self._restored = 0
        self._to_make: dict[tuple[Any, Any], Callable[[], object]] = {}  # by service and name
        self._received: defaultdict[str, deque[Any]] = defaultdict(deque)
        self._deadline = Deadline(JOIN_S)
        late = StallError(f"this rank has not repeated the survivors' calls within {JOIN_S:g} s")
        self._limit = threading.Timer(JOIN_S, self.give_up, [late])
        self._limit.daemon = True

    def begin(self) -> None:
        """Ask the survivors for their open collectives."""
        self._limit.start()
        with self._ends():
            states = self._membership.collected({}, self._deadline)
            self._plan = self._receive("plan")
            for number in sorted(set().union(*states)):
                self._of[number] = [state[number] for state in states if number in state]
            self._collectives.extend(n for n, of_all in self._of.items() if not all(one["left"] for one in of_all))
            self._make_completed()
            is_late = self._plan.is_closing and not self._collectives
            while is_late and self.restores:
                self._receive("state")
                self._restored += 1
            self._continue()
        if is_late:
            self._context.communicator.leave()
            raise SystemExit(0)

    def make_if_open(self, service: str, name: str, make: Callable[[], object]) -> None:
        self._to_make[service, name] = make
        self._make_next()

    def _make_next(self) -> bool:
        """Make the next collective if `make_if_open` has registered it; return False otherwise."""
        self._make_completed()
        following = self._plan.calls.get(self._collectives[0], {}) if self._collectives else {}
        make = self._to_make.pop((following.get("call"), following.get("name")), None)
        if make is None:
            return False
        make()
        return True

    def make(self, creation: PendingCreation) -> Any:
        """Make the next of the survivors' collectives, in the application's call that creates it."""
        if not self._collectives:
            self.refuse()
        with self._ends():
            number = self._collectives.popleft()
            collective = self._make(number, creation.service, creation.arguments, creation.build)
            self._continue()
            return collective

    def _make(
        self, number: int, service: str, make_arguments: Callable[[], Arguments], build: Callable[[Any, Deadline], Any]
    ) -> Any:
        self._context.created = number
        arguments = self._context.checked(service, make_arguments)
        expected = self._plan.calls.get(number)  # the donor may be in this creation, or have left
        if expected not in (None, got := described(arguments)):
            raise RuntimeError(f"expected the collective that the survivors made next, {expected}; got {got}")
        collective = self._context.enter(build(arguments, self._deadline), make_arguments)
        recoverable = collective.recoverable
        recoverable.fill(self._of[number], self._deadline)
        if expected is not None and (position := self._receive("position")) is not None:
            recoverable.take_position(position)
        recoverable.remake(arguments, self._deadline)
        return collective

    def _make_completed(self) -> None:
        """Make the next collectives that belong to completed whole calls of the donor, and leave them."""
        while self._collectives:
            number = self._collectives[0]
            calls = [state["call"] for state in self._of[number] if state.get("call")]
            if not calls or number >= self._plan.created or number in self._plan.calls:
                return
            self._collectives.popleft()
            build = partial(PartialAllreduce, self._context)
            call = WholeCall(*calls[0])
            made = self._make(number, PartialAllreduce.arguments.service, call.arguments, build)
            made.recoverable.whole_call = call  # if this rank becomes a donor
            made.leave()

    @property
    def restores(self) -> bool:
        return self._restored < self._plan.states

    def restore(self, restore: Callable[[Any], object]) -> None:
        if not self.restores:
            return
        with self._ends():
            state = self._receive("state")
            if isinstance(state, NotProvidedError):
                raise state
            restore(state)
            self._restored += 1
            self._continue()

    def _receive(self, kind: str) -> Any:
        while not self._received[kind]:
            length = int.from_bytes(self._data(8), "little")
            data = bytearray()
            while len(data) < length:
                data += self._data(min(PART, length - len(data)))
            of_kind, value = pickle.loads(data)
            self._received[of_kind].append(value)
        return self._received[kind].popleft()

    def _data(self, length: int) -> bytearray:
        from ..support.native import MPI

        data = bytearray(length)
        request = _messages_of(self._context.engine).Irecv([data, MPI.BYTE], self._donor, tag_of_survivors())
        _complete(request, self._context.engine, self._deadline)
        return data

    def _continue(self) -> None:
        """Join if all collectives are made and all states are restored."""
        if self._make_next() or self._collectives or self.restores:
            return
        self._context.created = max(self._plan.created, *(number + 1 for number in self._of), 0)
        self._membership.install(self._deadline)
        self._limit.cancel()
        self._membership.joined()

    def check_first(self, call: str) -> None:
        """End the process if the first collective that it creates after joining differs from the donor's."""
        if self._plan.pending not in (None, call):  # otherwise all ranks would raise MismatchError
            self.give_up(RuntimeError(f"expected the survivors' pending call first, {self._plan.pending}, got {call}"))

    def refuse(self) -> NoReturn:
        """End the process, because it made a call before it has joined."""
        calls = [self._plan.calls.get(number, {"call": "a collective", "name": number}) for number in self._collectives]
        missing = ["{call} {name!r}".format_map(call) for call in calls]
        missing += ["Communicator.state"] * (self._plan.states - self._restored)
        self.give_up(RuntimeError(f"expected the survivors' calls first: {', then '.join(missing)}"))

    def give_up(self, error: BaseException | None) -> NoReturn:
        """End this process, so that the survivors, which wait for it, continue without it."""
        end_process(self._subject, error)

    @contextlib.contextmanager
    def _ends(self) -> Iterator[None]:
        """End the process if the block raises an error."""
        try:
            yield
        except BaseException as error:
            self.give_up(error)


def _messages_of(engine: _core.Engine) -> MPI.Comm:
    mpi = engine.mpi_duplicate()
    assert mpi is not None
    return mpi


def _complete(request: MPI.Request, engine: _core.Engine, deadline: Deadline) -> None:
    """Wait until a message is complete; raise RankFailedError if a rank has died."""
    from ..support.native import MPI

    while True:
        try:
            if request.Test():
                return
        except MPI.Exception as error:
            _raise_death(error)
        if engine.progress == "caller":
            engine.advance()
        engine.check_usable()
        if deadline.passed:
            raise StallError("a newcomer has not received its state in time")
        time.sleep(PAUSE_S)


def _raise_death(error: MPI.Exception) -> NoReturn:
    if follows_death(error):
        raise RankFailedError(f"a rank died while a new rank was joining: {error}") from error
    raise error
