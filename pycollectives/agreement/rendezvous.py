"""Calls that all ranks of a communicator make together, with a check that the calls agree."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from ..support.deadline import Deadline
from ..support.errors import ClosedError, StallError
from .consistency import agree, share

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .. import _core
    from .checking import NoChecks
    from .consistency import Signed

SignedT = TypeVar("SignedT", bound="Signed")
MadeT = TypeVar("MadeT")


class Rendezvous:
    """One rank's part in calls that all ranks make together. The rank's threads take turns.

    Every method also raises the errors of `agreement.share`, and `ClosedError` after `close`.
    """

    def __init__(self, engine: _core.Engine, checks: NoChecks, timeout: float | None) -> None:
        """Use `engine` for the comparisons; `timeout` is the default limit of a call in seconds."""
        self._engine = engine
        self._checks = checks
        self._timeout = timeout
        self._turn = threading.Lock()
        self._closing = threading.Lock()
        self._busy: set[int] = set()  # threads that close, or have the turn
        self._shared = threading.local()  # the deadline of `within`
        self._open = True
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether the communicator is closed on this rank."""
        return self._closed

    @contextmanager
    def closing(self, deadline: Deadline) -> Iterator[None]:
        """Wait until no thread is in a call, and notify the other ranks that this rank makes no further call.

        Raise StallError if another thread is still closing or in a call at the deadline. Raise ClosedError if this
        thread is closing or in a call, which means that a signal handler called `closing`.
        """
        self._engine.check_process()
        with self._entered(), _held(self._closing, deadline, "another thread of this rank is closing it, and waits"):
            with _held(self._turn, deadline, "another thread of this rank is in a collective call, and waits"):
                self._engine.leave()
                self._open = False
            yield

    @property
    def deadline(self) -> Deadline:
        """The deadline of this thread's next call."""
        shared: Deadline | None = getattr(self._shared, "deadline", None)
        return shared or Deadline(self._timeout)

    @contextmanager
    def within(self, deadline: Deadline) -> Iterator[None]:
        """Make this thread's calls in the block share a deadline, which replaces their time limits."""
        before = getattr(self._shared, "deadline", None)
        self._shared.deadline = deadline
        try:
            yield
        finally:
            self._shared.deadline = before

    @property
    def is_closing(self) -> bool:
        return not self._open and not self._closed

    def move_to(self, engine: _core.Engine) -> None:
        self._engine = engine

    def close(self) -> None:
        self._open = False
        self._closed = True

    def check_open(self) -> None:
        """Raise `ClosedError` if this rank takes part in no further call."""
        if self._closed:
            raise ClosedError("the communicator is closed")
        if not self._open:
            raise ClosedError("this rank is closing the communicator")

    def make(self, call: str, check: Callable[[], SignedT], build: Callable[[SignedT, Deadline], MadeT]) -> MadeT:
        """Build an object from arguments that agree on all ranks; other threads of this rank wait.

        If `check` raises an error, the other ranks receive it.
        """
        with self._come(call) as deadline:
            agreed = agree(self._engine, call, check, timeout=deadline.remaining())
            return build(agreed, deadline)

    def agree(self, call: str, check: Callable[[], SignedT]) -> SignedT:
        """Compare the arguments of a call on the communicator; raise the errors of `agreement.agree`."""
        return self.make(call, check, lambda agreed, _: agreed)

    def share(self, call: str, make: Callable[[], SignedT]) -> tuple[SignedT, list[dict[str, Any]]]:
        """Return this rank's arguments and, if ranks differ, the statements of all ranks in order."""
        with self._come(call) as deadline:
            return share(self._engine, call, make, timeout=deadline.remaining())

    @contextmanager
    def _entered(self) -> Iterator[None]:
        """Refuse a call by a signal handler that has interrupted another collective call."""
        thread = threading.get_ident()
        if thread in self._busy:
            raise ClosedError("the communicator is in use: this thread is in a collective call or in close() already")
        self._busy.add(thread)
        try:
            yield
        finally:
            self._busy.discard(thread)

    @contextmanager
    def _come(self, call: str) -> Iterator[Deadline]:
        self.check_open()
        with self._entered():
            deadline = self.deadline
            self._checks.meet(call, deadline.remaining())  # unlocked: another thread may close at the same time
            with self._turn:
                self.check_open()
                yield deadline


@contextmanager
def _held(lock: threading.Lock, deadline: Deadline, why_not: str) -> Iterator[None]:
    """Hold a lock; raise StallError if the lock is not free by the deadline."""
    remaining = deadline.remaining()
    if not lock.acquire(timeout=-1 if remaining is None or remaining > threading.TIMEOUT_MAX else remaining):
        raise StallError(f"closing the communicator: {why_not}")
    try:
        yield
    finally:
        lock.release()
