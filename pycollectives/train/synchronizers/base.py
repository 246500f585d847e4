"""What a method of distributed SGD does with gradients and weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from mpi4py import MPI

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Outcome", "Synchronizer", "any_of", "average"]


def average(comm: MPI.Comm, array: NDArray[np.float32]) -> None:
    """Replace an array by its mean over all ranks, which has the same bits everywhere; collective."""
    comm.Allreduce(MPI.IN_PLACE, array, MPI.SUM)
    array /= comm.size


def any_of(comm: MPI.Comm, flag: bool) -> bool:
    """Whether it is True on any rank; collective."""
    flags = np.array(flag)
    comm.Allreduce(MPI.IN_PLACE, flags, MPI.LOR)
    return bool(flags)


class Outcome(NamedTuple):
    """What a rank was given in one step.

    Attributes
    ----------
    active
        Ranks with fresh data in it.
    late
        Whether its own data is not in it, because it came too late.
    missed
        Rounds that completed unseen while it worked.
    """

    active: int = 1
    late: bool = False
    missed: int = 0


class Synchronizer:
    """One rank's side of a method, made collectively from a `Communicator`, the rank's `Model`, and options.

    A method overrides `combine` if it averages gradients, `average` if it averages weights, and for the end of what is
    under way `leave`, `flush` and `equalize`. Without any of them each rank trains alone.
    """

    outcome = Outcome()
    """Of the newest step."""

    waits_while_computing = False
    """Whether ranks wait for each other in the backward pass, where waiting is not told from computing."""

    @classmethod
    def simulated(cls, **options: Any) -> dict[str, Any] | None:
        """Return the arguments of `pycollectives.simulation.simulate` that are this method's rounds, given its options.

        Those are `policy`, `late` and `max_staleness`; `seed` is always among the options. None: the simulator has no
        such method.
        """
        return None

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
        """Make all replicas equal, after `flush`. Collective."""

    def rejoin(self) -> None:
        """Take part again, after `equalize`; called if training goes on. Collective."""

    def close(self) -> None:
        """Leave for good; called once."""
