"""The training loop. It knows neither methods (synchronizers/) nor models (models/)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from mpi4py import MPI

from .reductions import check_alive

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .control import ControlChannel
    from .replica import Replica, Step

__all__ = ["Training"]


@dataclass
class Training:
    """The progress of a rank, which a checkpoint keeps beside the replica.

    Attributes
    ----------
    steps
        The total number of steps; a method may skip some.
    settle_every
        The steps after which replicas are made equal; None: only at the end.
    number
        The next step. The batch, the rate of the schedule and the load of a step depend only on this number.
    settled
        How often replicas were made equal by `settle_every`: the same on every rank, while steps may differ.
    """

    steps: int
    settle_every: int | None = None
    number: int = 0
    settled: int = 0

    def run(
        self,
        control: ControlChannel,
        replica: Replica,
        batch: Callable[[int], tuple[np.ndarray, ...]],
        work: Callable[[int, float], None],
        observers: Sequence[Callable[[Step], None]] = (),
        on_settled: Sequence[Callable[[], None]] = (),
    ) -> bool:
        """Train until all ranks have taken all steps, or one is stopped; return whether all were taken. Collective.

        Parameters
        ----------
        control
            The channel to all ranks, which reports after each step whether training must end. If ranks take steps at
            their own pace, each settles after its current step, and no rank waits for a rank that has settled.
        replica
            Trained in place; equal on all ranks afterwards.
        batch
            This rank's arrays for a step.
        work
            Called between the forward and the backward pass with the step and the time of its begin; injects the load.
        observers
            Called after each step.
        on_settled
            Called on all ranks, one after the other, when all replicas have been made equal.

        Raises
        ------
        RankFailedError
            Another rank has left by an exception. This rank learns of it after its step or in a barrier, not while it
            waits inside a step.
        """
        while True:
            self._take_steps(replica, batch, work, control, observers)
            replica.settle(self.number - 1, control)
            flags = np.array([control.is_stopped(), self.number < self.steps])
            control.comm.Allreduce(MPI.IN_PLACE, flags, MPI.LOR)
            check_alive(control.comm)
            any_stopped, any_unfinished = flags
            if not any_unfinished:
                self.settled = self.steps // (self.settle_every or self.steps)
            elif not any_stopped:
                self.settled += 1
            for act in on_settled:
                act()
                control.barrier()
            if any_stopped or not any_unfinished:
                return not any_unfinished
            replica.synchronizer.rejoin()

    def _take_steps(
        self,
        replica: Replica,
        batch: Callable[[int], tuple[np.ndarray, ...]],
        work: Callable[[int, float], None],
        control: ControlChannel,
        observers: Sequence[Callable[[Step], None]],
    ) -> None:
        """Take steps until replicas must be made equal, or training is stopped; no step if none is left."""
        end = self.steps
        if self.settle_every is not None:
            end = min(end, (self.settled + 1) * self.settle_every)
        while self.number < end:
            number, waited_s = replica.begin(self.number)
            if number >= end:  # skipped: all ranks settle at the same step, or there would be no common one
                self.number = end
                return
            # The step counts from the update on: if a rank dies in the wait after it, it is not applied twice.
            step = replica.step(number, batch(number), work, waited_s, partial(self._end, number))
            self._end(number)
            for observe in observers:
                observe(step)
            if replica.synchronizer.agree(control.is_stopped()):
                return

    def _end(self, number: int) -> None:
        self.number = number + 1
