"""The operations of a call that all ranks make, such as `finish`, one after another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..support.errors import ClosedError, MismatchError, StallError
from .parameters import Signature

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..communicator import Communicator
    from ..support.deadline import Deadline

LEFT = "left the communicator"
"""Text by which a `StallError` names ranks that will never make the call."""


class Operations:
    """Makes and counts the operations of a call, so that a rank that replaces a dead one continues with the next."""

    def __init__(self) -> None:
        self.call: str | None = None  # under way; on a newcomer, before its first call, the donor's
        self.completed = 0  # operations

    def check(self, call: str) -> None:
        """Raise RuntimeError on a newcomer whose donor is in another call: ranks would wait for each other."""
        if self.call not in (None, call):
            raise RuntimeError(f"{call}: expected the survivors' call first, {self.call}")

    def make(self, call: str, deadline: Deadline, *operations: Callable[[Deadline], None]) -> None:
        """Make the operations that are not complete."""
        self.check(call)
        self.call = call
        try:
            while self.completed < len(operations):
                operations[self.completed](deadline)
                self.completed += 1
        finally:
            self.call, self.completed = None, 0


def meet(comm: Communicator, call: str) -> None:
    """Check that all ranks make the same call, because `preduce` and `mean` cannot tell calls apart; collective."""
    try:
        comm.agree(call, lambda: Signature("", {}))
    except MismatchError as error:
        raise MismatchError(f"{error}: with sync_every all ranks take the same number of steps") from None
    except StallError as error:
        if LEFT in str(error):
            raise ClosedError(str(error)) from None
        raise


def synchronize(name: str, operation: Callable[[Deadline], None], deadline: Deadline) -> None:
    """Make an operation that averages parameters; `ClosedError`, which names the optimizer, if a rank has left."""
    try:
        operation(deadline)
    except ClosedError as error:
        raise ClosedError(
            f"{name}: parameters cannot be synchronized, since a rank has left after an exception, or after fewer "
            f"steps than the others, while sync_every needs the same number on all ranks ({error})"
        ) from None
