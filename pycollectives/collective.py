"""The protocol that all collectives share, and how `Communicator` gets a method for each service.

CONTRIBUTING.md, "Add a service", shows a small service.
"""

from __future__ import annotations

import contextlib
import inspect
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from .support.errors import ClosedError, RankFailedError, TransportError
from .support.lifecycle import exit_context

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Concatenate, ParamSpec, Protocol

    import numpy as np
    from typing_extensions import Self

    from .arguments import Arguments, Template
    from .communicator import Communicator
    from .context import Context
    from .support.deadline import Deadline

    P = ParamSpec("P")

    class EngineSide(Protocol):
        """The engine's side of a collective."""

        @property
        def closed(self) -> bool: ...
        def leave(self) -> None: ...
        def check_usable(self) -> None: ...

    class Creator(Protocol):
        """An object that creates collectives: a communicator, with its context."""

        @property
        def _context(self) -> Context: ...


ArgumentsT = TypeVar("ArgumentsT", bound="Arguments")
CollectiveT = TypeVar("CollectiveT", bound="Collective[Any]")

RAISES = """
        Raises
        ------
        ValueError, TypeError, BufferError
            An argument of this rank is refused. The other ranks raise `MismatchError`.
        MismatchError
            Arguments differ between ranks, or another rank's arguments are refused. Only the shape of an array may
            differ.
        StallError
            Some ranks do not make this call within the time limit.
        RuntimeError
            Shared memory or device memory cannot be allocated, on this or another rank. Or this thread has contributed
            to a collective without flushing it, so that ranks could deadlock.
        ClosedError
            The communicator is closed.
"""


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """Counters of one rank since the collective was made.

    Attributes
    ----------
    waited
        Seconds that calls of this rank have waited for other ranks.
    memory_bytes
        Memory of the collective on this rank, in bytes, including this rank's part of the node's shared memory. A
        partial allreduce on the host uses more when a rank falls behind.
    """

    waited: float
    memory_bytes: int


@dataclass(frozen=True, kw_only=True)
class CommunicatorStatistics(Statistics):
    """Counters of one rank, summed over its open collectives; `Communicator.statistics` returns them.

    Attributes
    ----------
    open
        Number of open collectives.
    preduce_cache
        Calls of `preduce` that reused a plan, and calls that made a new one, counting only groups that exchange
        messages. A plan fits all groups of the same size in which this rank has the same position; the newest 64
        plans are kept.
    """

    open: int
    preduce_cache: tuple[int, int]


class Collective(ABC, Generic[ArgumentsT]):
    """Base class of all collectives, which all ranks of a communicator make in the same order.

    As a context manager, a collective is closed at the end of the block. If the block raises, this rank aborts the
    collective: it leaves at once and discards its pending data, and a `RuntimeWarning` gives the number of discarded
    contributions. When the communicator is closed, it closes the collectives that are still open.

    A service derives from this class and makes the engine's side in `__init__`.

    Attributes
    ----------
    arguments
        The class of the arguments, for `Communicator.create`.
    discards
        Whether `abort` can lose data of this rank, so that a warning is useful.
    flushed_by
        The name of the call that flushes the collective, for messages; None for its own `flush`.
    """

    arguments: ClassVar[type[Arguments]]
    discards: bool = False
    flushed_by: str | None = None
    _collective: EngineSide

    def __init__(self, context: Context, arguments: ArgumentsT, deadline: Deadline) -> None:
        """Make the collective within a deadline, after all ranks have agreed on the arguments; collective."""
        del deadline
        self._context = context
        self._arguments = arguments

    # ------------------------------------------------------------------------------------------------ the end

    def flush(self, *, timeout: float | None = None) -> Any:
        """Deliver the pending data of all ranks, and return the result or None; collective.

        Parameters
        ----------
        timeout
            Seconds; None for the communicator's default, `math.inf` for no limit.

        Raises
        ------
        StallError
            Some ranks have neither flushed nor left in time; the message names them. Call `flush` again to continue.
        ClosedError
            This rank has left.
        """
        limit = self._context.limit(timeout)
        if self.closed:
            raise ClosedError(f"{self.name!r} is closed")
        return self._flush(limit)

    def _flush(self, timeout: float | None) -> Any:
        """Flush within `timeout` seconds. The base class has nothing to deliver."""
        del timeout

    def leave(self) -> None:
        """Leave the collective without waiting for other ranks. This rank's pending data is still delivered.

        The other ranks continue without this one. Leaving again does nothing.
        """
        self._collective.leave()
        self._context.forget(self)

    def close(self, *, timeout: float | None = None) -> None:
        """Flush the collective, then leave it; collective. Closing again does nothing.

        Parameters
        ----------
        timeout
            Seconds; None for the communicator's default, `math.inf` for no limit.

        Raises
        ------
        StallError
            As for `flush`. The collective stays open: call `close` again to continue, or `abort`.
        """
        if not self.closed:
            self.flush(timeout=timeout)
        self.leave()

    def abort(self) -> int:
        """Leave at once and discard this rank's pending data; return the number of discarded contributions."""
        try:
            if self.closed or not self._context.engine.in_own_process:
                return 0
            with contextlib.suppress(RankFailedError, TransportError):  # no rank is reachable
                return self._discard()
            return 0
        finally:
            self._context.forget(self)

    def _discard(self) -> int:
        """Leave, discard pending data, and return the number of discarded contributions. The base class has none."""
        self._collective.leave()
        return 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the collective; after an exception, abort it and warn about discarded data."""
        can_lose = self.discards and not self.closed
        exit_context(repr(self), kind, self, self._context, is_open=can_lose)

    # --------------------------------------------------------------------- for other collective calls of this thread

    @property
    def must_flush(self) -> bool:
        """Whether ranks may wait in this collective for this thread, which must `flush` before it waits elsewhere."""
        return False

    def start_flush(self) -> None:
        """Announce a `flush`: from now on no rank waits for this one. The base class does nothing."""
        return

    # ------------------------------------------------------------------------------------------------ the state

    @property
    def recoverable(self) -> Any:
        """The part that continues after deaths: see `membership`."""
        return self._collective

    @property
    def _begins_at(self) -> int:
        """The first step of this rank, more than 0 if it replaces a dead rank."""
        return 0 if self._context.membership is None else int(self.recoverable.begins_at)

    @abstractmethod
    def statistics(self) -> Statistics:
        """Return this rank's counters; local, without communication."""

    @property
    def name(self) -> str:
        """The name in messages and traces."""
        return self._arguments.name

    @property
    def comm(self) -> Communicator:
        """The communicator on which the collective was made."""
        return self._context.communicator

    @property
    def closed(self) -> bool:
        """Whether this rank has left."""
        return self._collective.closed

    @property
    def failed(self) -> Exception | None:
        """The exception that made the collective unusable and that further calls raise; None if usable or closed."""
        if self.closed:
            return None
        try:
            self._collective.check_usable()
        except Exception as error:
            return error
        return None

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type of arrays."""
        return self._template.buffer.dtype

    @property
    def count(self) -> int:
        """Number of elements in an array."""
        return self._template.buffer.count

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of results, in elements."""
        return self._template.buffer.shape

    @property
    def _template(self) -> Template:
        template = self._arguments.template
        if template is None:
            raise AttributeError(f"{type(self).__name__} has no arrays")
        return template

    def _c_handle(self) -> object:
        """Return the handle for calls from C (pycollectives.h): a capsule that lives as long as this object."""
        if self._context.membership is not None:
            raise TypeError(
                f"{self.name!r}: calls from C cannot continue after a death: expected a communicator with "
                "on_failure='raise', got on_failure='continue'"
            )
        if self.closed:
            raise ClosedError(f"{self.name!r} is closed")
        make = getattr(self._collective, "c_handle", None)
        if make is None:
            raise TypeError(
                f"{self.name!r}: expected a partial allreduce, a partial reduce, averaging with neighbors or in pairs, "
                f"or a parameter server, of arrays in host memory: C cannot call this {type(self).__name__}"
            )
        handle: object = make(timeout=self._context.timeout)
        return handle

    def __repr__(self) -> str:
        of = "" if self._arguments.template is None else f" of {self.count} {self.dtype}"
        choices = "".join(f" {choice}" for choice in self._choices())
        return f"<{type(self).__name__} {self.name!r}{of}{choices}{' closed' if self.closed else ''}>"

    def _choices(self) -> list[str]:
        """Return the arguments that `repr` shows."""
        return []

    # ------------------------------------------------------------------------------------------------ creation

    @classmethod
    def make(
        cls,
        context: Context,
        arguments: Callable[[], ArgumentsT],
        *,
        call: str | None = None,
        timeout: float | None = None,
    ) -> Self:
        """Make a collective of this kind; collective.

        `arguments` makes this rank's arguments. If it raises, this rank raises that error, and the other
        ranks raise `MismatchError`. `call`: the name in messages, by default the service.
        """
        service = cls.arguments.service

        def checked() -> ArgumentsT:
            made = arguments()
            cls.check_for_engine(context, made)
            return made

        return context.make(
            service, call or service, checked, lambda agreed, deadline: cls(context, agreed, deadline), timeout=timeout
        )

    @classmethod
    def check_for_engine(cls, context: Context, arguments: ArgumentsT) -> None:
        """Refuse arguments that the engine would refuse, before ranks compare them. The base class accepts all."""
        del context, arguments


def creates(
    kind: type[CollectiveT], arguments: Callable[P, Arguments]
) -> Callable[Concatenate[Creator, P], CollectiveT]:
    """Return a `Communicator` method that makes a collective; its parameters are the fields of the arguments."""

    def create(self: Creator, /, *positional: P.args, **named: P.kwargs) -> CollectiveT:
        def checked() -> Arguments:
            try:
                of_fields.bind(*positional, **named)
            except TypeError as error:
                raise TypeError(f"{kind.arguments.service}: {error}") from None
            return arguments(*positional, **named)

        limit: Any = named.get("timeout")
        return kind.make(self._context, checked, timeout=limit)

    of_fields = inspect.signature(arguments)
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    create.__signature__ = of_fields.replace(  # type: ignore[attr-defined]
        parameters=[own, *of_fields.parameters.values()], return_annotation=kind.__name__
    )
    create.__name__ = kind.arguments.service
    create.__qualname__ = f"Communicator.{kind.arguments.service}"
    create.__doc__ = f"{inspect.getdoc(arguments)}\n\nReturns\n-------\n{kind.__name__}\n\n{inspect.cleandoc(RAISES)}\n"
    return create
