"""Hop on a communicator with `on_failure="continue"`.

The neighbors of a dead rank become neighbors of each other. A rank that is behind the furthest survivor catches up in
iterations without neighbors, in which it only adds its own changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..agreement.continuing import Continuing, seconds_of
from ..support.buffers import as_bytes_exporter

if TYPE_CHECKING:
    from .. import _core
    from ..context import Context
    from ..support.deadline import Deadline
    from ..support.typing import Array
    from .arguments import HopArguments


def engine_side(context: Context, model: Array, deadline: Deadline, options: dict[str, Any]) -> _core.Hop:
    """Make the engine's Hop, which changes `model`; collective."""
    from ..support.native import core

    return core.Hop(
        context.engine,
        model=as_bytes_exporter(model),
        checks=context.checks.on,
        nodes=context.nodes,
        timeout=deadline.remaining(),
        **options,
    )


class ContinuingHop(Continuing["HopArguments", "_core.Hop"]):
    """Calls of the engine's Hop that recover if a rank has died."""

    def __init__(self, context: Context, arguments: HopArguments, deadline: Deadline, *, model: Array) -> None:
        self._model = model  # the array that the engine changes
        self._kept = model.copy()  # its values between calls
        self._is_in_iteration = False
        self._last = 0  # argument of the newest `enter`
        self._counts: dict[str, Any] = {}  # counters of former collectives
        self._counted: dict[str, Any] = {}  # counters of the engine's collective, between calls
        self._caught_up = 0  # iterations that this rank has taken without neighbors
        self._first = 0  # the first iteration of the engine's collective
        self.iteration = 0
        self._next = 0  # the iteration after the newest complete one
        self.received: list[tuple[int, int]] = []
        super().__init__(context, arguments, deadline)

    def _made_for_members(self, deadline: Deadline) -> _core.Hop:
        return engine_side(self._context, self._model, deadline, self._arguments.for_engine(self._members))

    @property
    def _first_number(self) -> int:
        return self._first

    # ------------------------------------------------------------------------------------------------ calls

    def enter(self, last: int, *, timeout: float | None = None) -> int:
        deadline = self.deadline(timeout)

        def action() -> int:
            self._check_not_left()
            core = self._notified_side
            if self._catches_up:
                raise RuntimeError(f"{self.name!r}: iteration {self.iteration} has not ended; call step first")
            if self._is_in_iteration or self._next >= self._first:
                self.iteration = self._first + core.enter(last - self._first, timeout=seconds_of(deadline))
                self._note_received(core)
            else:
                self.iteration = self._next
            self._is_in_iteration, self._last = True, last
            self._keep(core)
            return self.iteration

        return self._run(action, deadline)

    @property
    def _catches_up(self) -> bool:
        """Whether this rank is in an iteration without neighbors."""
        return self._is_in_iteration and self.iteration < self._first

    def step(self, delta: Any, *, timeout: float | None = None) -> None:
        deadline = self.deadline(timeout)

        def action() -> None:
            self._check_not_left()
            core = self._notified_side
            if self._catches_up:
                self._model += delta.view(self._model.dtype).reshape(self._model.shape)
                self._caught_up += 1
            else:
                core.step(delta, timeout=seconds_of(deadline))
                self._note_received(core)
            self._is_in_iteration, self._next = False, self.iteration + 1
            self._keep(core)

        self._run(action, deadline)

    def _keep(self, core: _core.Hop) -> None:
        """Keep the state between calls, which a recovery restores."""
        np.copyto(self._kept, self._model)
        self._counted = core.statistics()

    def _note_received(self, core: _core.Hop) -> None:
        self.received = [(self._members[rank], self._first + iteration) for rank, iteration in core.received]

    # ------------------------------------------------------------------------------------------------ recovering

    def read_state(self, lost: tuple[int, ...]) -> dict[str, Any]:
        del lost
        if self._core is not None:
            self._counts = self._with(self._counted or dict.fromkeys(self._core.statistics(), 0))
            self._counted = {}
            self._core = None
        np.copyto(self._model, self._kept)
        return {"left": self._left, "iteration": self.iteration if self._is_in_iteration else self._next}

    def fill(self, states: list[dict[str, Any]], deadline: Deadline) -> None:
        """See `Recoverable.fill`. Each survivor keeps its own model. Newcomers begin at the donor's iteration."""
        del deadline
        self._first = max(state["iteration"] for state in states if not state["left"])
        if self._membership.is_joining:
            self.begins_at = self.iteration = self._next = states[0]["iteration"]

    def position(self) -> Array:
        return self._kept

    def take_position(self, position: Array) -> None:
        for model in (self._model, self._kept):
            np.copyto(model, position)

    def resume(self) -> None:
        super().resume()
        if self._core is not None and not self._left and self._is_in_iteration and self.iteration == self._first:
            self._core.enter(max(self._last - self._first, 0))  # its first iteration, which waits for nothing

    # ------------------------------------------------------------------------------------------------ the state

    def statistics(self) -> dict[str, Any]:
        counts = self._counts if self._core is None else self._with(self._core.statistics())
        return counts | {"iterations": counts["iterations"] + self._caught_up}

    def _with(self, counts: dict[str, Any]) -> dict[str, Any]:
        former = {name: count for name, count in self._counts.items() if name != "memory_bytes"}
        return counts | {name: counts[name] + count for name, count in former.items()}
