"""Where all ranks of a communicator come to the same call, and find out whether they do."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, TypeVar

from ..support.deadline import Deadline
from ..support.errors import ClosedError
from .consistency import agree, share

if TYPE_CHECKING:
    from collections.abc import Callable

    from .checking import NoChecks
    from .consistency import Exchange, Signed

__all__ = ["Rendezvous"]

SignedT = TypeVar("SignedT", bound="Signed")
MadeT = TypeVar("MadeT")


class Rendezvous:
    """One rank's way to calls that all ranks make together; its threads take turns, so that no two calls mix.

    Every method raises, besides what its own text says, what `agreement.share` does, and `ClosedError` after `close`.
    """

    def __init__(self, engine: Exchange, checks: NoChecks, timeout: float | None) -> None:
        """The engine carries what ranks compare; `timeout` is for each call, in seconds."""
        self._engine = engine
        self._checks = checks
        self._timeout = timeout
        self._turn = threading.Lock()
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether this rank comes no more."""
        return self._closed

    def close(self) -> None:
        """Come no more."""
        self._closed = True

    def check_open(self) -> None:
        """Raise `ClosedError` after `close`."""
        if self._closed:
            raise ClosedError("the communicator is closed")

    def make(self, call: str, check: Callable[[], SignedT], build: Callable[[SignedT, Deadline], MadeT]) -> MadeT:
        """Build what all ranks specify alike, before another thread of this rank builds anything.

        What `check` raises is a refusal that the others learn of.
        """
        with self._turn:
            deadline = self._come(call)
            agreed = agree(self._engine, call, check, timeout=deadline.remaining())
            return build(agreed, deadline)

    def agree(self, call: str, check: Callable[[], SignedT]) -> SignedT:
        """Compare the arguments of a call that is built on the communicator; raises as `agreement.agree` does."""
        return self.make(call, check, lambda agreed, _: agreed)

    def share(self, call: str, make: Callable[[], SignedT]) -> tuple[SignedT, list[dict[str, Any]]]:
        """Return what this rank makes and, if ranks differ, what all say of theirs, in the order of ranks."""
        with self._turn:
            deadline = self._come(call)
            return share(self._engine, call, make, timeout=deadline.remaining())

    def _come(self, call: str) -> Deadline:
        deadline = Deadline(self._timeout)
        self.check_open()
        self._checks.meet(call, deadline.remaining())
        return deadline
