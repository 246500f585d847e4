"""What every service has in common: the base of its collectives, and of the methods that it adds to `Communicator`.

CONTRIBUTING.md, "Add a service", shows a small one.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, TypeVar

from .support.errors import RankFailedError, TransportError
from .support.lifecycle import exit_context

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Protocol

    import numpy as np
    from typing_extensions import Self

    from .context import Context
    from .support.buffers import BufferDescription

    class Closable(Protocol):
        """The engine's side of a collective."""

        @property
        def closed(self) -> bool: ...

    class Leavable(Closable, Protocol):
        """... that a rank leaves without waiting for another."""

        def close(self) -> None: ...

    class Named(Protocol):
        """The checked arguments of a collective."""

        @property
        def name(self) -> str: ...

    class ReductionSpecification(Named, Protocol):
        """The checked arguments of a collective that reduces buffers."""

        @property
        def buffer(self) -> BufferDescription: ...
        @property
        def op(self) -> str: ...


__all__ = ["Collective", "Factory", "Reduction", "WithoutFlush"]

CollectiveT = TypeVar("CollectiveT", bound="Collective")


class Collective(ABC):
    """Something that all ranks of a communicator make, in the same order; `Communicator.create` makes it.

    The communicator flushes and closes what is still open at its own end. As a context manager a collective is flushed
    and closed at the end of the block (collective). If the block raises, it is closed at once, what waits is discarded,
    and a `RuntimeWarning` says how much.

    Attributes
    ----------
    discards
        Whether `abort` can lose data that this rank has handed over, so that the warning is worth while.
    flushed_by
        What the application calls to flush it, if that is not its own `flush`; for messages.
    """

    discards: bool = True
    flushed_by: str | None = None

    @classmethod
    @abstractmethod
    def create(cls, context: Context, /, *arguments: Any, **options: Any) -> Self:
        """Make one; collective. Builds it in `context.make`, which compares the arguments across ranks first."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name in messages and traces."""

    @property
    @abstractmethod
    def closed(self) -> bool:
        """Whether this rank has left for good."""

    @abstractmethod
    def close(self) -> None:
        """Leave for good, without waiting for another rank; calls `context.forget`. Closing again does nothing."""

    @abstractmethod
    def abort(self) -> int:
        """Close at once and discard what waits; the number of contributions that no rank will get."""

    @property
    def must_flush(self) -> bool:
        """Whether other ranks may wait here for this thread: it must not wait for them elsewhere before `flush`."""
        return False

    def start_flush(self) -> None:
        """Begin a `flush`, which is to follow: from now on no rank waits for this one. Here: nothing."""
        return

    def flush(self, timeout: float | None = None) -> Any:
        """Deliver what still waits, of all ranks; collective. Here: nothing.

        Parameters
        ----------
        timeout
            Seconds; None for the communicator's default.
        """
        del timeout

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Flush and close; after an exception close at once and warn of what is discarded."""
        exit_context(
            repr(self),
            kind,
            close=self._flush_and_close,
            abort=self.abort,
            is_open=self.discards and not self.closed,
        )

    def _flush_and_close(self) -> None:
        if not self.closed:
            self.flush()
            self.close()


class WithoutFlush(Collective):
    """A collective of the engine in which nothing waits to be delivered; a derived class makes it in `__init__`."""

    discards = False
    _collective: Leavable
    _context: Context
    _specification: Named

    def close(self) -> None:
        """Leave for good, without waiting for anybody; the others go on without this rank. Again does nothing."""
        self._collective.close()
        self._context.forget(self)

    def abort(self) -> int:
        """Close at once. Returns 0: nothing that was handed over waits to be delivered."""
        with contextlib.suppress(RankFailedError, TransportError):  # no rank can be reached any more
            self._collective.close()
        self._context.forget(self)
        return 0

    @property
    def closed(self) -> bool:
        """Whether this rank has left for good."""
        return self._collective.closed

    @property
    def name(self) -> str:
        """The name in messages and traces."""
        return self._specification.name


class Reduction(Collective):
    """A collective of the engine that reduces buffers; a derived class makes it in `__init__`."""

    _collective: Closable
    _specification: ReductionSpecification

    @property
    def closed(self) -> bool:
        """Whether this rank has left for good."""
        return self._collective.closed

    @property
    def name(self) -> str:
        """The name in messages and traces."""
        return self._specification.name

    @property
    def op(self) -> str:
        """The reduction's name: "SUM", "PROD", "MIN", "MAX" or "AVG"."""
        return self._specification.op

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type of the buffers."""
        return self._specification.buffer.dtype

    @property
    def count(self) -> int:
        """Elements of a buffer."""
        return self._specification.buffer.count

    def __repr__(self) -> str:
        """Show what it is and whether it is closed."""
        state = " closed" if self.closed else ""
        return f"<{type(self).__name__} {self.name!r} {self.op} of {self.count} {self.dtype} {self._choices()}{state}>"

    @abstractmethod
    def _choices(self) -> str:
        """The arguments that `repr` shows besides."""


class Factory:
    """Something that collectives are made on: the base of `Communicator`, and of what each service adds to it."""

    _context: Context

    def create(self, kind: type[CollectiveT], /, **arguments: Any) -> CollectiveT:
        """Make a collective of any kind; collective. For services that have no method of their own here.

        Parameters
        ----------
        kind
            A class derived from `pycollectives.collective.Collective`.
        arguments
            Passed to `kind.create`, after the context of this communicator: its engine, nodes, checks and timeout.

        Raises
        ------
        ValueError, TypeError, BufferError
            An argument is refused: on this rank. The others raise `MismatchError`.
        MismatchError
            Arguments differ between ranks, or another rank's were refused.
        StallError
            Some ranks do not create it within the communicator's timeout.
        RuntimeError
            A partial allreduce on which this thread has contributed is not flushed: ranks could wait for each other.
        ClosedError
            The communicator is closed.
        """
        return kind.create(self._context, **arguments)
