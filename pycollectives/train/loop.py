"""The training loop. It knows neither methods (synchronizers/) nor models (models/)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from mpi4py import MPI

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .control import ControlChannel
    from .replica import Replica, Step

__all__ = ["Training"]


@dataclass
class Training:
    """Where a rank stands, which is what a checkpoint keeps beside the replica.

    Attributes
    ----------
    steps
        To take in all; a method may skip some.
    settle_every
        Steps between two times that replicas are made equal; None: only at the end.
    number
        The next step. All that depends on a step, its batch, the schedule, the load, follows from this number alone.
    settled
        How many of the times that `settle_every` says are over: the same on every rank, while steps may differ.
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
        """Train until all ranks have taken all their steps, or one is stopped; collective. Whether all have.

        Parameters
        ----------
        control
            All ranks: asked after each step whether training shall end now. Methods whose ranks go at their own pace
            settle then wherever each is: no rank waits for one that has settled.
        replica
            Trained in place; equal on all ranks afterwards.
        batch
            This rank's arrays for a step.
        work
            Called between the passes with the step and the time of its begin: takes the time that the load says.
        observers
            Called after each step that is taken.
        on_settled
            Called, one after the other, whenever all replicas have been made equal, on all ranks.

        Raises
        ------
        RankFailedError
            Another rank has left by an exception. A rank finds out after a step or in a barrier, but not while it waits
            within a step, as it does in methods whose ranks wait for all.
        """
        while True:
            self._take_steps(replica, batch, work, control, observers)
            replica.settle(self.number - 1, control)
            flags = np.array([control.is_stopped(), self.number < self.steps])
            control.comm.Allreduce(MPI.IN_PLACE, flags, MPI.LOR)
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
        """Until replicas are to be made equal, or training is stopped; a rank that has no steps left takes none."""
        end = self.steps
        if self.settle_every is not None:
            end = min(end, (self.settled + 1) * self.settle_every)
        while self.number < end:
            number, waited_s = replica.begin(self.number)
            if number >= end:  # skipped: all ranks settle at the same step, or there would be no common one
                self.number = end
                return
            step = replica.step(number, batch(number), work, waited_s)
            self.number = number + 1
            for observe in observers:
                observe(step)
            if replica.synchronizer.agree(control.is_stopped()):
                return
