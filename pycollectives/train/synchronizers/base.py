"""The interface of a method of distributed SGD, and the two kinds of methods.

`Synchronizer` is what the training loop calls. Most methods extend one of its two subclasses: `GradientSynchronizer`
if ranks exchange gradients before the update rule, or `WeightSynchronizer` if each rank applies its
own gradient and ranks exchange weights. A method of another kind, such as a parameter server, overrides `begin` and
`update` of `Synchronizer` itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..reductions import average

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ...communicator import Communicator
    from ..models.base import Model
    from ..optimizers import Optimizer


class Outcome(NamedTuple):
    """The result of one step on a rank.

    Attributes
    ----------
    active
        The number of ranks with fresh data in the result.
    late
        Whether the result lacks this rank's data, which was late.
    missed
        Rounds that completed while this rank computed, and whose results it had not received.
    """

    active: int = 1
    late: bool = False
    missed: int = 0


class Simulated(NamedTuple):
    """A module of `pycollectives.simulation`, and arguments of its `seconds_for_all`."""

    simulator: str
    arguments: dict[str, Any]


class Synchronizer:
    """One rank's part in a method, made collectively from a `Communicator`, the rank's `Model`, and options.

    In each step the loop calls `begin`, computes the gradient, and calls `update` and `agree`. To make replicas equal,
    it calls `leave`, `flush` and `equalize`, and `rejoin` if training continues. By default each rank trains alone.
    """

    outcome = Outcome()
    """The outcome of the newest step."""

    in_step = False
    """Whether ranks meet in a blocking call that depends on the number of the step. After a death they continue from
    the same step."""

    needs_equal_steps = False
    """Whether a rank would wait indefinitely for a rank that takes fewer steps."""

    can_lose_ranks = True
    """Whether survivors of a death can create it again."""

    waits_while_computing = False
    """Whether ranks wait for each other in the backward pass, where waiting cannot be distinguished from computing."""

    @classmethod
    def why_staged(cls) -> str:
        """Return why the method needs arrays on the host, or "" if it accepts tensors on a model's device.

        If it needs arrays on the host, the loop copies a model's weights and gradient there and back in each step.
        Otherwise the method receives flat tensors on the model's device; see `train.arrays`.
        """
        return "the method works in host memory"

    @classmethod
    def for_fewer(cls, ranks: int, **options: Any) -> dict[str, Any]:
        """Return the `options` for the `ranks` left after a death, with no more arrivals or members than ranks."""
        return options

    @classmethod
    def simulated(cls, **options: Any) -> Simulated | None:
        """Return the simulator of this method for its `options`, or None.

        `seed` is always among the options.
        """
        return None

    def begin(self, weights: NDArray[np.float32], number: int) -> int:
        """Prepare step `number`, and return the number of the step to take.

        The method may wait for other ranks, and replace the `weights` at which the gradient is computed. A rank that is
        behind may skip steps by returning a larger number: the loop leaves out their batches, and schedule, metrics
        and checkpoints continue from that number. If replicas are made equal or training ends before that number, the
        rank takes no step, and the loop calls `leave` next.
        """
        return number

    def update(self, model: Model, optimizer: Optimizer, number: int) -> None:
        """Change the weights of `model` in step `number`, given `model.gradient`; this may wait for other ranks.

        A method with another update rule, such as a parameter server, does not use `optimizer`.
        """
        optimizer.update(model.weights, model.gradient, number)

    def agree(self, stop: bool) -> bool:
        """Return whether to stop after this step. `stop` is True if this rank must stop.

        If ranks wait for each other in every step, all ranks return the same value.
        """
        return stop

    def part(self, weights: NDArray[np.float32]) -> tuple[NDArray[np.float32], float] | None:
        """Return this rank's part of the mean model after a step, and its share relative to other ranks' shares.

        `weights` are the replica's. Return None if the replica itself is the model whose convergence counts.
        """
        return None

    def leave(self) -> None:
        """Leave: no rank waits for this one anymore. Does not wait, because other ranks may have many steps left."""

    def flush(self, model: Model, optimizer: Optimizer, number: int) -> None:
        """Apply outstanding data to `model`, by `optimizer`, after step `number`. Collective, after all have left."""

    def equalize(self, weights: NDArray[np.float32]) -> None:
        """Make the `weights` of all replicas equal, after `flush`. Collective."""

    def rejoin(self) -> None:
        """Rejoin after `equalize`; called if training continues. Collective."""

    def close(self) -> None:
        """Leave permanently; called once."""


class GradientSynchronizer(Synchronizer):
    """A method whose ranks exchange gradients: override `combine`, and `owed` if gradients may be late."""

    def combine(self, gradient: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the gradient for the update rule, from this rank's `gradient`; valid until the next call."""
        return gradient

    def owed(self) -> NDArray[np.float32] | None:
        """Return the gradient that this replica has not applied yet, or None. Collective, after all ranks have left."""
        return None

    def update(self, model: Model, optimizer: Optimizer, number: int) -> None:
        """Apply the gradient that `combine` returns."""
        gradient = self.combine(model.gradient)
        if gradient is None:
            raise TypeError(f"{type(self).__name__}.combine: expected an array, got None: is a return missing?")
        optimizer.update(model.weights, gradient, number)

    def flush(self, model: Model, optimizer: Optimizer, number: int) -> None:
        """Apply the `owed` gradient in one update. If it is None, do not update, since momentum would act."""
        owed = self.owed()
        if owed is not None:
            optimizer.update(model.weights, owed, number)


class WeightSynchronizer(Synchronizer):
    """A method whose ranks exchange weights after the update: override `average`."""

    def __init__(self, comm: Communicator) -> None:
        self.comm = comm

    def average(self, weights: NDArray[np.float32], number: int) -> None:
        """Replace the `weights` with an average of this and other ranks' weights, after the update of step `number`."""

    def update(self, model: Model, optimizer: Optimizer, number: int) -> None:
        """Apply this rank's gradient, then `average` the weights."""
        optimizer.update(model.weights, model.gradient, number)
        self.average(model.weights, number)

    def part(self, weights: NDArray[np.float32]) -> tuple[NDArray[np.float32], float]:
        """Return the weights, and the same share as every rank."""
        return weights, 1.0

    def equalize(self, weights: NDArray[np.float32]) -> None:
        average(self.comm.mpi_comm, weights)
