"""Where all ranks of a communicator come to the same call, and find out whether they do."""

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

__all__ = ["Rendezvous"]

SignedT = TypeVar("SignedT", bound="Signed")
MadeT = TypeVar("MadeT")


class Rendezvous:
    """One rank's way to calls that all ranks make together; its threads take turns, so that no two calls mix.

    Every method raises, besides what its own text says, what `agreement.share` does, and `ClosedError` after `close`.
    """

    def __init__(self, engine: _core.Engine, checks: NoChecks, timeout: float | None) -> None:
        """The engine carries what ranks compare; `timeout` is for each call, in seconds."""
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
        """Whether this rank comes no more."""
        return self._closed

    @contextmanager
    def closing(self, deadline: Deadline) -> Iterator[None]:
        """Tell the other ranks that this one comes no more, once none of its threads is in such a call.

        One thread at a time.

        Raises
        ------
        StallError
            Another thread closes, or is in such a call, until the deadline.
        ClosedError
            This thread is in such a call, or closes already: the caller is a signal handler.
        """
        self._engine.check_process()
        with self._entered(), _held(self._closing, deadline, "another thread of this rank is closing it, and waits"):
            with _held(self._turn, deadline, "another thread of this rank is in a collective call, and waits"):
                self._engine.leave()
                self._open = False
            yield

    @contextmanager
    def within(self, deadline: Deadline) -> Iterator[None]:
        """Let this thread's calls in the block share a deadline, which replaces the time limit of each."""
        before = getattr(self._shared, "deadline", None)
        self._shared.deadline = deadline
        try:
            yield
        finally:
            self._shared.deadline = before

    def close(self) -> None:
        """Note that the communicator is closed."""
        self._open = False
        self._closed = True

    def check_open(self) -> None:
        """Raise `ClosedError` once this rank comes no more."""
        if self._closed:
            raise ClosedError("the communicator is closed")
        if not self._open:
            raise ClosedError("this rank is closing the communicator")

    def make(self, call: str, check: Callable[[], SignedT], build: Callable[[SignedT, Deadline], MadeT]) -> MadeT:
        """Build what all ranks specify alike, before another thread of this rank builds anything.

        What `check` raises is a refusal that the others learn of.
        """
        with self._come(call) as deadline:
            agreed = agree(self._engine, call, check, timeout=deadline.remaining())
            return build(agreed, deadline)

    def agree(self, call: str, check: Callable[[], SignedT]) -> SignedT:
        """Compare the arguments of a call that is built on the communicator; raises as `agreement.agree` does."""
        return self.make(call, check, lambda agreed, _: agreed)

    def share(self, call: str, make: Callable[[], SignedT]) -> tuple[SignedT, list[dict[str, Any]]]:
        """Return what this rank makes and, if ranks differ, what all say of theirs, in the order of ranks."""
        with self._come(call) as deadline:
            return share(self._engine, call, make, timeout=deadline.remaining())

    @contextmanager
    def _entered(self) -> Iterator[None]:
        """Refuse a signal handler what its own thread is in the middle of."""
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
            deadline = getattr(self._shared, "deadline", None) or Deadline(self._timeout)
            self._checks.meet(call, deadline.remaining())  # not in the turn: another thread may close meanwhile
            with self._turn:
                self.check_open()
                yield deadline


@contextmanager
def _held(lock: threading.Lock, deadline: Deadline, why_not: str) -> Iterator[None]:
    """Hold a lock, which another thread may have until the deadline."""
    remaining = deadline.remaining()
    if not lock.acquire(timeout=-1 if remaining is None or remaining > threading.TIMEOUT_MAX else remaining):
        raise StallError(f"closing the communicator: {why_not}")
    try:
        yield
    finally:
        lock.release()
