"""The protocol of collectives, which is the same for all services, and how `Communicator` gets a service's method.

CONTRIBUTING.md, "Add a service", shows a small one.
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
        """What has a context: a communicator."""

        @property
        def _context(self) -> Context: ...


__all__ = ["Collective", "CommunicatorStatistics", "Statistics", "creates"]

ArgumentsT = TypeVar("ArgumentsT", bound="Arguments")
CollectiveT = TypeVar("CollectiveT", bound="Collective[Any]")

RAISES = """
        Raises
        ------
        ValueError, TypeError, BufferError
            An argument is refused: on this rank. The others raise `MismatchError`.
        MismatchError
            Arguments differ between ranks, or another rank's were refused. The shape of an array may differ.
        StallError
            Some ranks do not create it within the limit.
        RuntimeError
            Memory that ranks share, or memory of a device, cannot be had, on this or another rank. Or a collective on
            which this thread has contributed is not flushed: ranks could wait for each other.
        ClosedError
            The communicator is closed.
"""


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """What a rank has counted, since the collective was made: no other rank is asked.

    Attributes
    ----------
    waited
        Seconds that its calls have waited for other ranks.
    memory_bytes
        Memory that was made for it on this rank, of what ranks of a node share this rank's part.
    """

    waited: float
    memory_bytes: int


@dataclass(frozen=True, kw_only=True)
class CommunicatorStatistics(Statistics):
    """What `Communicator.statistics` says of one rank: the sums over the collectives that are open.

    Attributes
    ----------
    open
        How many they are.
    preduce_cache
        Calls of `preduce` that found an existing plan, and those that needed a new one. Of groups that go by messages.
        A plan serves all groups of a size in which this rank has the same position; the newest 64 are kept.
    """

    open: int
    preduce_cache: tuple[int, int]


class Collective(ABC, Generic[ArgumentsT]):
    """Something that all ranks of a communicator make, in the same order.

    As a context manager a collective is closed at the end of the block. If the block raises, it is left at once, what
    waits is discarded, and a `RuntimeWarning` says how much. What is still open the communicator closes at its own end.

    A service derives from it, and makes the engine's side in `__init__`.

    Attributes
    ----------
    arguments
        The class of its arguments, for `Communicator.create`.
    discards
        Whether `abort` can lose data that this rank has handed over, so that the warning is worth while.
    flushed_by
        What the application calls to flush it, if that is not its own `flush`; for messages.
    """

    arguments: ClassVar[type[Arguments]]
    discards: bool = False
    flushed_by: str | None = None
    _collective: EngineSide

    def __init__(self, context: Context, arguments: ArgumentsT, deadline: Deadline) -> None:
        """Make it, within a deadline, once all ranks have agreed on the arguments; collective."""
        del deadline
        self._context = context
        self._arguments = arguments

    # ------------------------------------------------------------------------------------------------ the end

    def flush(self, *, timeout: float | None = None) -> Any:
        """Deliver everything that any rank handed over; collective. It stays usable.

        Parameters
        ----------
        timeout
            Seconds; None for the communicator's default, `math.inf` for no limit.

        Raises
        ------
        StallError
            Some ranks have neither flushed nor left in time; names them. Call it again to go on.
        ClosedError
            This rank has left.
        """
        limit = self._context.limit(timeout)
        if self.closed:
            raise ClosedError(f"{self.name!r} is closed")
        return self._flush(limit)

    def _flush(self, timeout: float | None) -> Any:
        """Flush within so many seconds. Here: nothing waits to be delivered."""
        del timeout

    def leave(self) -> None:
        """Take no further part, without waiting for another rank. What this rank handed over is still delivered.

        The others go on without it. Leaving again does nothing.
        """
        self._collective.leave()
        self._context.forget(self)

    def close(self, *, timeout: float | None = None) -> None:
        """`flush`, then `leave`. Closing again does nothing.

        Parameters
        ----------
        timeout
            Seconds; None for the communicator's default, `math.inf` for no limit.

        Raises
        ------
        StallError
            As `flush`. It stays open: call it again to go on, or `abort`.
        """
        if not self.closed:
            self.flush(timeout=timeout)
        self.leave()

    def abort(self) -> int:
        """Leave at once and discard what waits; the number of contributions that no rank will get."""
        try:
            if self.closed or not self._context.engine.in_own_process:
                return 0
            with contextlib.suppress(RankFailedError, TransportError):  # no rank can be reached any more
                return self._discard()
            return 0
        finally:
            self._context.forget(self)

    def _discard(self) -> int:
        """Leave and discard what waits; the number of contributions. Here: nothing waits."""
        self._collective.leave()
        return 0

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close; after an exception leave at once and warn of what is discarded."""
        can_lose = self.discards and not self.closed
        exit_context(repr(self), kind, close=self.close, abort=self.abort, is_open=can_lose)

    # --------------------------------------------------------------------- for other collective calls of this thread

    @property
    def must_flush(self) -> bool:
        """Whether other ranks may wait here for this thread: it must not wait for them elsewhere before `flush`."""
        return False

    def start_flush(self) -> None:
        """Begin a `flush`, which is to follow: from now on no rank waits for this one. Here: nothing."""
        return

    # ------------------------------------------------------------------------------------------------ what is known

    @abstractmethod
    def statistics(self) -> Statistics:
        """Return what this rank has done so far; local, without communication."""

    @property
    def name(self) -> str:
        """The name in messages and traces."""
        return self._arguments.name

    @property
    def comm(self) -> Communicator:
        """The communicator that it was made on."""
        return self._context.communicator

    @property
    def closed(self) -> bool:
        """Whether this rank has left."""
        return self._collective.closed

    @property
    def failed(self) -> Exception | None:
        """The exception that made it unusable, which further calls raise; None: it is usable, or closed."""
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
        """Elements of an array."""
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

    def __repr__(self) -> str:
        """Show what it is and whether it is closed."""
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
        """Make one; collective.

        Parameters
        ----------
        context
            Of the communicator.
        arguments
            Makes this rank's arguments. What it raises is a refusal of this rank, which the other ranks get too.
        call
            What ranks call, for messages; by default the service.
        timeout
            Seconds; None for the communicator's default.
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
        """Raise what the engine would refuse, before ranks agree. Here: nothing."""
        del context, arguments


def creates(
    kind: type[CollectiveT], arguments: Callable[P, Arguments]
) -> Callable[Concatenate[Creator, P], CollectiveT]:
    """Return a method of a communicator that makes a collective: its parameters are the fields of the arguments."""

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
    create.__doc__ = f"{inspect.getdoc(arguments)}\n{inspect.cleandoc(RAISES)}\n"
    return create
