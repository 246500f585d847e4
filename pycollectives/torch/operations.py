"""The operations of a call that all ranks make, such as `finish`, one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..support.errors import ClosedError, MismatchError, StallError
from .parameters import Signature

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..communicator import Communicator
    from ..support.deadline import Deadline

__all__ = ["Operations", "meet"]

LEFT = "left the communicator"
"""Text by which a `StallError` names ranks that will never make the call."""


class Operations:
    """Makes the operations of a call, and counts them, so that a rank that replaces a dead one continues with the next.

    Attributes
    ----------
    completed
        Those of the call that is under way. On a newcomer, before its first call: those that the donor has completed.
    """

    def __init__(self) -> None:
        """Begin without a call."""
        self.completed = 0

    def make(self, deadline: Deadline, *operations: Callable[[Deadline], None]) -> None:
        """Make the operations that are not completed."""
        try:
            while self.completed < len(operations):
                operations[self.completed](deadline)
                self.completed += 1
        finally:
            self.completed = 0


def meet(comm: Communicator, call: str) -> None:
    """Check that all ranks make the same call, because `preduce` and `mean` cannot tell calls apart; collective.

    Raises
    ------
    MismatchError
        Ranks make different calls.
    ClosedError
        Another rank has left.
    """
    try:
        comm.agree(call, lambda: Signature("", {}))
    except MismatchError as error:
        raise MismatchError(f"{error}: with sync_every all ranks make equally many steps") from None
    except StallError as error:
        if LEFT in str(error):
            raise ClosedError(str(error)) from None
        raise
