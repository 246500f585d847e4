"""Several optimizers in one thread: refuse those that could deadlock, and find those that flush together.

A late call does not count as an arrival. If ranks step two optimizers in turn, rank A could wait in one for rank B,
which waits in the other for rank A. Within one optimizer, a rank that waits in a bucket arrives in the other buckets
(see `buckets`). The rank cannot do so in another optimizer, which has no data in flight between steps: zeros would
start rounds without any gradients.

If rounds wait for data, late or not, and ranks step optimizers in the same order, all ranks wait for the slowest
rank, which waits for no rank.
"""

from __future__ import annotations

import enum
import threading
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..policies import Policy
    from .optimizer import CollectiveOptimizer


class Waits(enum.Enum):
    """The events that the rounds of an optimizer may wait for."""

    NEVER = "nothing"
    DATA = "data"
    ARRIVALS = "arrivals"

    @classmethod
    def of(cls, policy: Policy, max_staleness: int | None, size: int) -> Waits:
        """Return the events for an optimizer's options and `size` ranks."""
        if policy.waits_for_arrivals(size):
            return cls.ARRIVALS
        return cls.NEVER if policy.kind == "solo" and max_staleness is None else cls.DATA


class DeadlockGuard(threading.local):
    """The optimizers of a thread, in order of creation. Refuses an optimizer that could deadlock with another."""

    def __init__(self) -> None:
        self._waits: weakref.WeakKeyDictionary[CollectiveOptimizer, Waits] = weakref.WeakKeyDictionary()

    def admit(self, optimizer: CollectiveOptimizer, waits: Waits) -> None:
        """Admit an optimizer; `ValueError` if ranks in it and in another open optimizer could wait for each other."""
        for other in self.others_that_wait(optimizer):
            if waits is not Waits.NEVER and Waits.ARRIVALS in (waits, self._waits[other]):
                raise ValueError(
                    f"policy: ranks could wait for each other indefinitely, some in this optimizer and some in "
                    f"{other.name!r}, which is open: use Solo() for all but one, or Full() for all, or wrap one "
                    "optimizer with all parameters"
                )
        self._waits[optimizer] = waits

    def others_that_wait(self, optimizer: CollectiveOptimizer) -> list[CollectiveOptimizer]:
        """Return the other open optimizers whose rounds may wait."""
        return [
            other
            for other, waits in self._waits.items()
            if other is not optimizer and not other.closed and waits is not Waits.NEVER
        ]
