"""The part of a communicator that its collectives use, with the list of open collectives."""

from __future__ import annotations

import contextlib
import threading
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from .agreement import consistency
from .agreement.rendezvous import Rendezvous
from .arguments import Group, creating
from .support.deadline import Deadline
from .support.errors import ClosedError
from .support.validation import checked_timeout

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Protocol

    from . import _core
    from .agreement.checking import NoChecks
    from .agreement.consistency import Signed
    from .arguments import Arguments, Template
    from .collective import Collective
    from .communicator import Communicator
    from .membership.members import Membership
    from .support.costs import Costs
    from .support.typing import Array

    AnyCollective = Collective[Any]

    class Part(Protocol):
        """Data that a service keeps once per communicator."""

        def __init__(self, context: Context) -> None: ...
        def close(self) -> None: ...


ArgumentsT = TypeVar("ArgumentsT", bound="Arguments")
CollectiveT = TypeVar("CollectiveT", bound="AnyCollective")
PartT = TypeVar("PartT", bound="Part")
SignedT = TypeVar("SignedT", bound="Signed")
T = TypeVar("T")


@dataclass
class PendingCreation:
    """The creation of a collective that has not returned yet. Other ranks may have completed it before a death."""

    arguments: Callable[[], Arguments]
    service: str
    build: Callable[[Any, Deadline], Any]
    call: str
    number: int | None = None  # set when it is this creation's turn
    has_stalled: bool = False  # whether its recovery has; the application may repeat the call


class Context:
    """One rank's side of a communicator, as its collectives see it."""

    def __init__(
        self,
        engine: _core.Engine,
        nodes: Sequence[int],
        checks: NoChecks,
        timeout: float | None,
        costs: Costs | None = None,
        *,
        communicator: Communicator,
    ) -> None:
        self._communicator = weakref.ref(communicator)  # which owns this
        self.engine = engine
        self.nodes = tuple(nodes)  # of each rank; ranks of one node share memory
        self.checks = checks  # compares calls across ranks under `PYC_CHECK=1`
        self.timeout = timeout  # default limit of calls that wait for other ranks, in seconds; None for no limit
        self.costs = costs  # the same on all ranks; None if ranks share cores or the costs are unknown
        # makes all ranks meet in the same call and compare its arguments
        self.rendezvous = Rendezvous(engine, checks, timeout)
        self.membership: Membership | None = None  # if the communicator continues after deaths
        self.created = 0
        self._open: dict[AnyCollective, None] = {}
        self._parts: dict[type[Part], Part] = {}
        self._making_part = threading.Lock()
        self._closing_checks: list[Callable[[], None]] = []

    @property
    def communicator(self) -> Communicator:
        """The communicator of this context; raises `ClosedError` once the communicator is closed and deleted."""
        communicator = self._communicator()
        if communicator is None:
            raise ClosedError("the communicator is closed")
        return communicator

    @property
    def rank(self) -> int:
        """The number of this process, 0 <= rank < size."""
        return self.engine.rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self.engine.size

    @property
    def open(self) -> tuple[AnyCollective, ...]:
        """The collectives that this rank has not closed, in the order of creation."""
        return tuple(self._open)

    def make(
        self,
        service: str,
        call: str,
        arguments: Callable[[], ArgumentsT],
        build: Callable[[ArgumentsT, Deadline], CollectiveT],
        *,
        timeout: float | None = None,
    ) -> CollectiveT:
        """Make a collective with the same arguments on all ranks; collective.

        Threads of a rank take turns, so that all ranks make their collectives in the same order. If `arguments` raises,
        `make` raises the error after the other ranks have received it. `build` makes the collective within a deadline,
        after all ranks have agreed. `timeout`: None for the default, or for the time that is left in the surrounding
        `rendezvous.within`.
        """

        def checked() -> ArgumentsT:
            self.engine.check_next_id()  # if one rank refuses, all do
            self.check_newcomers(service)
            if self.membership is not None:
                self.membership.begin(creation)
            return self.checked(service, arguments)

        def build_and_enter(agreed: ArgumentsT, deadline: Deadline) -> CollectiveT:
            made = self.enter(build(agreed, deadline), arguments)
            if self.membership is not None:
                self.membership.confirm(call, deadline)
            return made

        def make() -> CollectiveT:
            return self.rendezvous.make(call, checked, build_and_enter)

        creation = PendingCreation(arguments, service, build, call)
        self.check_flushed(call)
        with self.limited(timeout):
            if self.membership is None:
                return make()
            return self.membership.make(creation, make, self.deadline_of(timeout))

    def enter(self, made: CollectiveT, arguments: Callable[[], Arguments]) -> CollectiveT:
        """Register a collective that was made, and return it."""
        if self.membership is not None:
            self.membership.enter(self.created, arguments, made)
        self.created += 1
        self._open[made] = None
        return made

    def check_newcomers(self, call: str) -> None:
        """Raise ValueError if dead ranks are replaced, and their replacements could not take part in this call."""
        if self.membership is not None:
            self.membership.check_newcomers(call)

    def check_on_host(self, name: str, template: Template) -> None:
        """Raise ValueError if the communicator continues after deaths and an array is on a device."""
        if self.membership is not None and template.device is not None:
            raise ValueError(
                f"{name}: expected an array in host memory with on_failure='continue', got one on a device"
            )

    def agree(self, call: str, check: Callable[[], SignedT]) -> SignedT:
        """Compare the arguments of a call on the communicator; collective."""
        if self.membership is None:
            return self.rendezvous.agree(call, check)
        return consistency.agree(self.membership, call, check)

    def move_to(self, other: Context) -> None:
        """Continue with the engine of another communicator, which has no collectives."""
        self.engine, self.nodes, self.costs = other.engine, other.nodes, other.costs
        self.rendezvous.move_to(other.engine)

    def limited(self, timeout: float | None) -> contextlib.AbstractContextManager[None]:
        """Make the collective calls in the block share one time limit, if given. The calls refuse an invalid limit."""
        return contextlib.nullcontext() if timeout is None else self.rendezvous.within(self.deadline_of(timeout))

    def checked(
        self,
        service: str,
        arguments: Callable[[], ArgumentsT],
        *,
        name: str | None = None,
    ) -> ArgumentsT:
        """Return the result of `arguments` for a collective on these ranks, or raise its error; local.

        `name`: the default name.
        """
        group = Group(self.rank, self.size, self.nodes, self.costs)
        original_size = None if self.membership is None else self.communicator.size
        with creating(group, name or f"{service}[{self.created}]", original_size):
            return arguments()

    def check_flushed(self, call: str) -> None:
        """Raise `RuntimeError` if ranks could deadlock, because they may wait for this thread in an open collective."""
        unflushed = [collective for collective in self.open if not collective.closed and collective.must_flush]
        if unflushed:
            names = ", ".join(repr(collective.name) for collective in unflushed)
            flushes = ", ".join(dict.fromkeys(c.flushed_by or f"flush() on {c.name!r}" for c in unflushed))
            raise RuntimeError(
                f"{call}: flush first: ranks may still wait for this one in {names}, while it would wait for them "
                f"here. On all ranks call {flushes}, then {call}"
            )

    def forget(self, closed: AnyCollective) -> None:
        """Remove a collective that this rank has closed, if it is registered."""
        self._open.pop(closed, None)

    def limit(self, timeout: float | None) -> float | None:
        """Return the limit of a call in seconds: `timeout`, checked, or the default if it is None."""
        return self.timeout if timeout is None else checked_timeout(timeout)

    def deadline_of(self, timeout: float | None) -> Deadline:
        """Return the deadline of a call. An invalid timeout is refused later, where the other ranks learn of it."""
        try:
            return Deadline(self.limit(timeout))
        except (TypeError, ValueError):
            return Deadline(self.timeout)

    def full_rounds(self, like: Array, op: str, name: str, deadline: Deadline) -> _core.PartialAllreduce:
        """Make the engine's partial allreduce with policy "full" for arrays such as `like`; collective."""
        from .support.native import core

        return core.PartialAllreduce(
            self.engine,
            nodes=self.nodes,
            timeout=deadline.remaining(),
            default_timeout=self.timeout,
            shape=like.shape,
            dtype=like.dtype,
            dtype_name=like.dtype.name,
            convert=np.asarray,
            writable=np.asarray,
            op=op,
            policy="full",
            name=name,
        )

    def part(self, kind: type[PartT]) -> PartT:
        """Return the communicator's only `kind(context)`. It is made at first use, and closed with the communicator."""
        with self._making_part:
            if kind not in self._parts:
                self._parts[kind] = kind(self)
            made = self._parts[kind]
        assert isinstance(made, kind)
        return made

    def when_closed(self, check: Callable[[], None]) -> None:
        """Register `check`, which the communicator's `close` calls at its end to raise a pending error."""
        self._closing_checks.append(check)

    def check_closed(self) -> None:
        """Raise pending errors of collectives, after all ranks have closed them."""
        for check in self._closing_checks:
            check()

    def start_flush(self) -> None:
        """Announce a flush in all collectives, so that this rank delays no rank while it waits in another flush."""
        for collective in self.open:
            if not collective.closed and collective.failed is None:
                collective.start_flush()

    def flush(self, deadline: Deadline) -> None:
        """Flush the open collectives, in the order of creation; collective."""
        self.start_flush()
        for collective in self.open:
            if not collective.closed:
                collective.flush(timeout=deadline.remaining())

    def leave(self) -> None:
        """Leave all open collectives without waiting, even if one of the calls raises."""
        with contextlib.ExitStack() as stack:
            for part in self._parts.values():
                stack.callback(part.close)
            for collective in reversed(self.open):
                stack.callback(collective.leave)

    def close(self, deadline: Deadline) -> None:
        """Flush and leave the open collectives, in the order of creation; collective."""
        self.start_flush()
        for collective in self.open:
            if collective.failed is None:  # a failed one can deliver no data, and its calls have raised
                collective.close(timeout=deadline.remaining())
        self.leave()

    def abort(self) -> int:
        """Abort the open collectives, even if one of them raises; return the number of discarded contributions."""
        discarded: list[int] = []
        with contextlib.ExitStack() as stack:
            for collective in reversed(self.open):
                stack.callback(lambda aborted: discarded.append(aborted.abort()), collective)
        return sum(discarded)
