"""What a method of distributed SGD does with gradients and weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Outcome", "Synchronizer"]


class Outcome(NamedTuple):
    """Of one step: ranks with fresh data in what this rank was given, and rounds that its own data has waited."""

    active: int = 1
    staleness: int = 0


class Synchronizer:
    """One rank's side of a method, made collectively from a `Communicator`, the rank's `Model`, and options.

    A method overrides `combine` if it averages gradients, `average` if it averages weights, and for the end of what is
    under way `leave`, `flush` and `equalize`. Without any of them each rank trains alone.
    """

    outcome = Outcome()
    """Of the newest step."""

    def combine(self, gradient: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return what the update rule is applied to, given this rank's gradient; valid until the next call."""
        return gradient

    def average(self, weights: NDArray[np.float32], number: int) -> None:
        """Replace the weights, after the update of step `number`."""

    def agree(self, stop: bool) -> bool:
        """Whether to stop after this step: True on all ranks at once if ranks wait for each other in every step."""
        return stop

    def leave(self) -> None:
        """From now on no rank waits for this one; without waiting, for others may have many steps to take."""

    def flush(self) -> NDArray[np.float32] | None:
        """Return what is still to be applied. Collective, after all ranks have left."""
        return None

    def equalize(self, weights: NDArray[np.float32]) -> None:
        """Make all replicas equal, after `flush`; training may go on. Collective."""

    def close(self) -> None:
        """Leave for good; called once, after `flush`."""
