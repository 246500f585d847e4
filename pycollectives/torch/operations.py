"""Run the operations of a collective call, such as `finish`, one after another."""

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
    """Runs and counts a call's operations, so that a rank that replaces a dead one continues with the next one."""

    def __init__(self) -> None:
        self.call: str | None = None  # under way; on a newcomer, before its first call, the donor's
        self.completed = 0  # operations

    def check(self, call: str) -> None:
        """On a rank that replaces a dead one, raise RuntimeError if the survivors are in a call other than `call`."""
        if self.call not in (None, call):
            raise RuntimeError(f"{call}: this rank replaces a dead one: call {self.call} first, as the survivors do")

    def make(self, call: str, deadline: Deadline, *operations: Callable[[Deadline], None]) -> None:
        """Run the operations that have not completed."""
        self.check(call)
        self.call = call
        try:
            while self.completed < len(operations):
                operations[self.completed](deadline)
                self.completed += 1
        finally:
            self.call, self.completed = None, 0


def meet(comm: Communicator, call: str) -> None:
    """Check that all ranks make the same call, since `preduce` and `mean` cannot distinguish calls; collective."""
    try:
        comm.agree(call, lambda: Signature("", {}))
    except MismatchError as error:
        raise MismatchError(f"{error}; with sync_every, all ranks must take the same number of steps") from None
    except StallError as error:
        if LEFT in str(error):
            raise ClosedError(str(error)) from None
        raise


def synchronize(name: str, operation: Callable[[Deadline], None], deadline: Deadline) -> None:
    """Run an operation that averages parameters. If a rank has left, raise a `ClosedError` that names the optimizer."""
    try:
        operation(deadline)
    except ClosedError as error:
        raise ClosedError(
            f"{name}: parameters cannot be synchronized, since a rank has left after an exception, or after fewer "
            f"steps than other ranks; sync_every needs the same number of steps on all ranks ({error})"
        ) from None
