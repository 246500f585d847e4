"""The partial reduce of a communicator with `on_failure="continue"`.

A group with a dead member is dissolved. Each survivor gets its own weights back, and its call joins another group among
the survivors. A survivor whose call had completed keeps the average.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np

from ..agreement.continuing import Continuing, seconds_of
from ..support.errors import RankFailedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .. import _core
    from ..context import Context
    from ..support.deadline import Deadline
    from ..support.typing import Array
    from .arguments import PartialReduceArguments

SUMMED_COUNTERS = ("averages", "cache_hits", "cache_misses", "waited")
"""Counters summed over the former collectives."""


class ContinuingReduce(Continuing["PartialReduceArguments", "_core.PartialReduce"]):
    """The engine's partial reduce, with calls that recover if a rank has died."""

    def __init__(self, context: Context, arguments: PartialReduceArguments, deadline: Deadline) -> None:
        self._coordinator = arguments.coordinator_rank
        self._in_call: Array | None = None  # the weights of an unfinished call, even after its time limit
        self._kept = np.empty(0, np.uint8)  # ... and a copy of them
        self._next_step = 0
        self._steps: dict[int, int] = {}  # the next step of each member, at the newest recovery
        self._first = 0  # sequence number of the first group of the engine's collective
        self._sequence = 0  # ... of the next group, as far as this rank knows
        self._counts: dict[str, float] = dict.fromkeys(SUMMED_COUNTERS, 0)  # counters of former collectives
        super().__init__(context, arguments, deadline)

    def _made_for_members(self, deadline: Deadline) -> _core.PartialReduce:
        from ..support.native import core

        members = self._members
        coordinator = members.index(self._coordinator) if self._coordinator in members else 0
        options = self._arguments.for_engine(self._context.nodes) | {"coordinator_rank": coordinator}
        return core.PartialReduce(self._context.engine, timeout=deadline.remaining(), **options)

    @property
    def _first_number(self) -> int:
        return self._first

    # ------------------------------------------------------------------------------------------------ calls

    def average(
        self, values: Any, *, step: int, group: Sequence[int] = (), timeout: float | None = None
    ) -> tuple[tuple[int, ...], int, float, int]:
        """Average `values` in place. Ranks in `group` and in the result have their original numbers."""
        deadline = self.deadline(timeout)
        self._check_not_left()

        def action() -> tuple[tuple[int, ...], int, float, int]:
            core = self._engine_side
            if self._in_call is None:
                self._keep(values.reshape(-1).view(np.uint8))
            chosen = [self._members.index(rank) for rank in self._partners(group, step)]
            members, sequence, waited, conflicts = core.average(
                values, step=step, group=chosen, timeout=seconds_of(deadline)
            )
            self._in_call = None
            self._next_step = step + 1
            if not group:
                sequence += self._first
                self._sequence = max(self._sequence, sequence + 1)
            return tuple(self._members[position] for position in members), sequence, waited, conflicts

        try:
            return self._run(action, deadline)
        except BaseException:
            with contextlib.suppress(RankFailedError):
                self._context.engine.check_usable()
                raise
            self._restore()  # the engine has stopped, and the next call may pass other weights
            raise

    def _restore(self) -> None:
        """Restore the values of an unfinished average. The engine must have stopped."""
        if self._in_call is not None:
            np.copyto(self._in_call, self._kept)
            self._in_call = None

    def _keep(self, weights: Array) -> None:
        if self._kept.size != weights.size:
            self._kept = np.empty_like(weights)
        np.copyto(self._kept, weights)
        self._in_call = weights

    def _partners(self, group: Sequence[int], step: int) -> list[int]:
        """Return the members of a static group that are alive and have not completed this step.

        If a rank dies, some members may have completed a step that others repeat.
        """
        return [rank for rank in group if rank in self._members and self._steps.get(rank, 0) <= step]

    def leave(self, values: Any | None = None) -> None:
        if self._left or not self._enter_soon():
            self._left = True
            return
        try:
            with contextlib.suppress(RankFailedError):
                self._engine_side.leave(values)
            self._left = True
        finally:
            self._in_use.release()

    # ------------------------------------------------------------------------------------------------ recovering

    def read_state(self, lost: tuple[int, ...]) -> dict[str, Any]:
        del lost
        if self._core is not None:
            counts = self._core.statistics()
            for name in SUMMED_COUNTERS:
                self._counts[name] += counts[name]
            self._core = None
        self._restore()
        return {"left": self._left, "member": self._rank, "step": self._next_step, "sequence": self._sequence}

    def fill(self, states: list[dict[str, Any]], deadline: Deadline) -> None:
        """See `Recoverable.fill`. Each survivor keeps its own weights. Newcomers begin at the donor's step."""
        del deadline
        donor, *_ = states
        self._steps = dict.fromkeys(self._membership.members, donor["step"])
        self._steps |= {state["member"]: state["step"] for state in states}
        self._first = self._sequence = max(state["sequence"] for state in states)
        if self._membership.is_joining:
            self.begins_at = self._next_step = self._steps[self._rank]

    # ------------------------------------------------------------------------------------------------ the state

    def statistics(self) -> dict[str, Any]:
        counts: dict[str, Any] = {"memory_bytes": 0} if self._core is None else self._core.statistics()
        return counts | {name: counts.get(name, 0) + self._counts[name] for name in SUMMED_COUNTERS}
