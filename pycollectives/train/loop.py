"""The training loop, which is independent of methods (synchronizers/) and models (models/)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from mpi4py import MPI

from .reductions import check_alive

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..counter.collective import SharedCounter
    from .batches import Batches
    from .control import ControlChannel
    from .replica import Replica, Step

__all__ = ["BySpeed", "Training"]


class BySpeed:
    """Batches that ranks take from one counter, in the order of steps. A step has as many batches as ranks.

    Parameters
    ----------
    counter
        The number of batches that ranks have taken.
    ranks
        The number of ranks with which the training began.
    """

    def __init__(self, counter: SharedCounter, ranks: int) -> None:
        self._counter, self._ranks = counter, ranks
        self._kept: int | None = None  # taken, and of a step after an end

    def take(self, end: int) -> int | None:
        """Return the number of the next batch before step `end`, or None if no batch is left."""
        number = self._counter.fetch_add() if self._kept is None else self._kept
        is_later = number >= end * self._ranks
        self._kept = number if is_later else None
        return None if is_later else number

    def taken(self, end: int) -> int:
        """Return the number of batches that ranks have taken before step `end`."""
        return min(self._counter.read(), end * self._ranks)


@dataclass
class Training:
    """The progress of a rank, which a checkpoint saves with the replica.

    Attributes
    ----------
    steps
        The total number of steps; a method may skip some.
    settle_every
        The number of steps after which replicas are made equal again; if None, only at the end.
    number
        This rank's next step. Its batch, the rate of the schedule and its load depend only on this number, or on
        `position` if ranks take batches by their speed.
    settled
        How often `settle_every` made replicas equal. The count is the same on every rank, even if steps differ.
    by_speed
        If ranks take batches by their speed, the number of batches in a step, which is the initial number of ranks.
        Otherwise None. `shared` must be set before `run`.
    taken
        With `by_speed`, the number of batches that all ranks took up to this rank's newest batch, or in all, between
        two runs.
    shared
        With `by_speed`, the batches.
    """

    steps: int
    settle_every: int | None = None
    number: int = 0
    settled: int = 0
    by_speed: int | None = None
    taken: int = 0
    shared: BySpeed | None = None

    @property
    def position(self) -> int:
        """The next step of this rank; with `by_speed`, the next step of all ranks together."""
        return self.taken // self.by_speed if self.by_speed else self.number

    @property
    def current(self) -> int:
        """With `by_speed`, the step of all ranks together to which this rank's newest batch belongs."""
        assert self.by_speed
        return (self.taken - 1) // self.by_speed

    def run(
        self,
        control: ControlChannel,
        replica: Replica,
        batches: Batches,
        work: Callable[[int, float], None],
        observers: Sequence[Callable[[Step], None]] = (),
        on_settled: Sequence[Callable[[], None]] = (),
        is_over: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Train until all steps are taken, time is over, or a rank is stopped; return False if stopped. Collective.

        Parameters
        ----------
        control
            The channel to all ranks, which reports after each step whether training must end. If ranks take steps at
            their own pace, each rank leaves after its current step, and no rank waits for a rank that has left.
        replica
            The replica, which is trained in place and is equal on all ranks afterwards.
        batches
            The source of this rank's arrays for each step.
        work
            Injects the load; called between forward and backward pass with the step and its start time.
        observers
            Functions to call after each step.
        on_settled
            Functions to call on all ranks, one after another, when all replicas have been made equal.
        is_over
            Returns whether the time for training has passed, on this rank's clock.

        Raises
        ------
        RankFailedError
            Another rank has left after an exception. This rank learns of the failure after its step or in a barrier,
            not while it waits inside a step.
        """
        while True:
            end = self._next_end()
            self._take_steps(end, replica, batches, work, control, observers, is_over)
            replica.settle(self.number - 1, control)
            if self.shared is not None:
                self.taken = self.shared.taken(end)
            flags = np.array([control.is_stopped(), self.position < self.steps, is_over()])
            control.comm.Allreduce(MPI.IN_PLACE, flags, MPI.LOR)
            check_alive(control.comm)
            any_stopped, any_unfinished, any_over = flags
            if not any_unfinished:
                self.settled = self.steps // (self.settle_every or self.steps)
            elif not (any_stopped or any_over):
                self.settled += 1
            for act in on_settled:
                act()
                control.barrier()
            if any_over or not any_unfinished:
                return True
            if any_stopped:
                return False
            replica.synchronizer.rejoin()

    def _next_end(self) -> int:
        """Return the step before which replicas must be made equal."""
        return self.steps if self.settle_every is None else min(self.steps, (self.settled + 1) * self.settle_every)

    def _take_steps(
        self,
        end: int,
        replica: Replica,
        batches: Batches,
        work: Callable[[int, float], None],
        control: ControlChannel,
        observers: Sequence[Callable[[Step], None]],
        is_over: Callable[[], bool],
    ) -> None:
        """Take all steps before step `end`, unless training is stopped or over. Take no step if no step is left."""
        while self.shared is not None or self.number < end:
            place = None
            if self.shared is not None:
                if (taken := self.shared.take(end)) is None:
                    return
                self.taken, place = taken + 1, taken % (self.by_speed or 1)
            number, waited_s = replica.begin(self.number)
            if place is None and number >= end:  # skipped: all ranks settle at the same step, or none would be common
                self.number = end
                return
            position = number if place is None else self.current
            batch = batches(number) if place is None else batches.of_place(position, place)
            # The step counts from the update on: if a rank dies in the wait after it, it is not applied twice.
            step = replica.step(number, batch, partial(_at, work, position), waited_s, partial(self._end, number))
            self._end(number)
            for observe in observers:
                observe(replace(step, number=position))
            if replica.synchronizer.agree(control.is_stopped() or is_over()):
                return

    def _end(self, number: int) -> None:
        self.number = number + 1


def _at(work: Callable[[int, float], None], position: int, number: int, begin: float) -> None:
    """Inject the load of step `position`, instead of the load of step `number`."""
    del number
    work(position, begin)
