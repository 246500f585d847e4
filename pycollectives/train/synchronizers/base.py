"""What a method of distributed SGD does around a rank's steps, and the two kinds of methods.

`Synchronizer` is what the training loop calls. Most methods extend one of its two subclasses: `GradientSynchronizer`
if ranks exchange gradients, which the update rule is then applied to, or `WeightSynchronizer` if each rank applies its
own gradient and ranks exchange weights. A method of another kind, such as a parameter server, overrides `begin` and
`update` of `Synchronizer` itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from mpi4py import MPI

from ..arrays import on_host

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...communicator import Communicator
    from ..models.base import Model
    from ..optimizers import Optimizer

__all__ = ["GradientSynchronizer", "Outcome", "Synchronizer", "WeightSynchronizer", "any_of", "average"]


def average(comm: MPI.Comm, array: NDArray[np.float32]) -> None:
    """Replace an array by its mean over all ranks, which has the same bits everywhere; collective."""
    with on_host(array) as values:
        comm.Allreduce(MPI.IN_PLACE, values, MPI.SUM)
        values /= comm.size


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


class Simulated(NamedTuple):
    """A module of `pycollectives.simulation`, and arguments of its `seconds_for_all`."""

    simulator: str
    arguments: dict[str, Any]


class Synchronizer:
    """One rank's side of a method, made collectively from a `Communicator`, the rank's `Model`, and options.

    In each step the loop calls `begin`, computes the gradient, and calls `update` and `agree`. When replicas settle,
    it calls `leave`, `flush` and `equalize`, and `rejoin` if training goes on. By default each rank trains alone.
    """

    outcome = Outcome()
    """Of the newest step."""

    in_step = False
    """Whether all ranks take the same step at the same time: `agree` is collective then."""

    waits_while_computing = False
    """Whether ranks wait for each other in the backward pass, where waiting is not told from computing."""

    @classmethod
    def why_staged(cls) -> str:
        """Say why it has to be given arrays on the host where a model computes on a device; empty: it takes tensors.

        Then a model's weights and gradient are copied there and back in each step, and the method needs to know nothing
        of devices. One that takes tensors is given flat ones, on the model's device; see `train.arrays`.
        """
        return "the method works in memory of the host"

    @classmethod
    def simulated(cls, **options: Any) -> Simulated | None:
        """Return which simulator has this method, given its options; None: there is none.

        `seed` is always among the options.
        """
        return None

    def begin(self, weights: NDArray[np.float32], number: int) -> int:
        """Prepare step `number`, and return the number of the step to take.

        It may wait for other ranks, and replace the weights by those that the gradient is to be computed at. A rank
        that is behind may skip steps by returning a larger number: their batches are left out, and schedule, metrics
        and checkpoints go on from there. The loop cuts a jump short where replicas settle next or training ends: then
        the rank takes no step, and `leave` comes next.
        """
        return number

    def update(self, model: Model, optimizer: Optimizer, number: int) -> None:
        """Change `model.weights` in step `number`, given `model.gradient`; this may wait for other ranks.

        Where the update rule is not `optimizer.update`, as on a parameter server, `optimizer` is not used.
        """
        optimizer.update(model.weights, model.gradient, number)

    def agree(self, stop: bool) -> bool:
        """Whether to stop after this step: True on all ranks at once if ranks wait for each other in every step."""
        return stop

    def leave(self) -> None:
        """Let no rank wait for this one from now on; without waiting, for others may have many steps to take."""

    def flush(self, model: Model, optimizer: Optimizer, number: int) -> None:
        """Apply what is still to be applied, after step `number`. Collective, after all ranks have left."""

    def equalize(self, weights: NDArray[np.float32]) -> None:
        """Make all replicas equal, after `flush`. Collective."""

    def rejoin(self) -> None:
        """Take part again, after `equalize`; called if training goes on. Collective."""

    def close(self) -> None:
        """Leave for good; called once."""


class GradientSynchronizer(Synchronizer):
    """A method whose ranks exchange gradients: override `combine`, and `owed` if some may come after the last step."""

    def combine(self, gradient: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return what the update rule is applied to, given this rank's gradient; valid until the next call."""
        return gradient

    def owed(self) -> NDArray[np.float32] | None:
        """Return what is still to be applied to this replica, or None. Collective, after all ranks have left."""
        return None

    def update(self, model: Model, optimizer: Optimizer, number: int) -> None:
        """Apply what `combine` returns."""
        gradient = self.combine(model.gradient)
        if gradient is None:
            raise TypeError(f"{type(self).__name__}.combine: expected an array, got None: no return?")
        optimizer.update(model.weights, gradient, number)

    def flush(self, model: Model, optimizer: Optimizer, number: int) -> None:
        """Apply what is `owed` in one update; nothing, which is no gradient of 0, if it is None."""
        owed = self.owed()
        if owed is not None:
            optimizer.update(model.weights, owed, number)


class WeightSynchronizer(Synchronizer):
    """A method whose ranks exchange weights after the update: override `average`."""

    def __init__(self, comm: Communicator) -> None:
        self.comm = comm

    def average(self, weights: NDArray[np.float32], number: int) -> None:
        """Replace the weights by an average with those of other ranks, after the update of step `number`."""

    def update(self, model: Model, optimizer: Optimizer, number: int) -> None:
        """Apply this rank's gradient, then `average` the weights."""
        optimizer.update(model.weights, model.gradient, number)
        self.average(model.weights, number)

    def equalize(self, weights: NDArray[np.float32]) -> None:
        """Give every rank the mean of all ranks' weights."""
        average(self.comm.mpi_comm, weights)
