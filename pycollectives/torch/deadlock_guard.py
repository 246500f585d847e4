"""Several optimizers in one thread: which could hang, and are refused; which are flushed together.

A late call is no arrival. So of two optimizers that ranks step in turns, a rank could wait in each for one that waits
in the other. A rank that waits in a bucket of one optimizer therefore arrives in its other buckets (see `buckets`). In
another optimizer it cannot: that has nothing on its way between its steps, and zeros would start rounds, and be
results, in which nobody has gradients.

Where rounds wait for data, late or not, ranks that step in the same order wait for the slowest, which waits for nobody.
"""

from __future__ import annotations

import enum
import threading
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..policies import Policy
    from .optimizer import CollectiveOptimizer

__all__ = ["DeadlockGuard", "Waits"]


class Waits(enum.Enum):
    """What the rounds of an optimizer may wait for."""

    NEVER = "nothing"
    DATA = "data"
    ARRIVALS = "arrivals"

    @classmethod
    def of(cls, policy: Policy, max_staleness: int | None, size: int) -> Waits:
        """Tell from its options, for `size` ranks."""
        if policy.waits_for_arrivals(size):
            return cls.ARRIVALS
        return cls.NEVER if policy.kind == "solo" and max_staleness is None else cls.DATA


class DeadlockGuard(threading.local):
    """The optimizers of a thread, in the order in which they were made: refuses one that could hang with another."""

    def __init__(self) -> None:
        """Start with none, in each thread."""
        self._waits: weakref.WeakKeyDictionary[CollectiveOptimizer, Waits] = weakref.WeakKeyDictionary()

    def admit(self, optimizer: CollectiveOptimizer, waits: Waits) -> None:
        """Admit one; `ValueError` if ranks could wait for each other, some in it and some in one that is open."""
        for other in self.others_that_wait(optimizer):
            if waits is not Waits.NEVER and Waits.ARRIVALS in (waits, self._waits[other]):
                raise ValueError(
                    f"policy: ranks could wait for each other for ever, some in this optimizer and some in "
                    f"{other.name!r}, which is open: let all but one have Solo(), or all Full(), or wrap one optimizer "
                    "of all parameters"
                )
        self._waits[optimizer] = waits

    def others_that_wait(self, optimizer: CollectiveOptimizer) -> list[CollectiveOptimizer]:
        """Return the others that are open and may wait."""
        return [
            other
            for other, waits in self._waits.items()
            if other is not optimizer and not other.closed and waits is not Waits.NEVER
        ]
