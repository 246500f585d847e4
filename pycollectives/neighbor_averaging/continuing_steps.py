"""The synchronous averages with neighbors on a communicator with `on_failure="continue"`.

The neighbors of a dead rank become neighbors of each other. If a death interrupts ranks in different steps, ranks that
are behind catch up in steps without neighbors, in which they keep their own model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..agreement.continuing import Continuing, seconds_of
from ..support.deadline import Deadline
from ..support.errors import ClosedError, RankFailedError

if TYPE_CHECKING:
    from .. import _core
    from ..context import Context
    from ..support.typing import Array
    from .arguments import NeighborhoodArguments


class ContinuingNeighborhood(Continuing["NeighborhoodArguments", "_core.Neighborhood"]):
    """The engine's averages with neighbors, with calls that recover if a rank has died."""

    def __init__(
        self, context: Context, arguments: NeighborhoodArguments, deadline: Deadline, *, push_sum: bool
    ) -> None:
        self._push_sum = push_sum
        self._begun: Array | None = None  # the model of the step in progress
        self._newest: Array | None = None  # the result of the newest completed step
        self._weight = 1.0  # of that result
        self._steps = 0  # steps started
        self._together_from = 0  # this rank takes earlier steps without neighbors
        self._waited = 0.0  # seconds in former collectives
        super().__init__(context, arguments, deadline)

    def _made_for_members(self, deadline: Deadline) -> _core.Neighborhood:
        from ..support.native import core

        return core.Neighborhood(
            self._context.engine,
            push_sum=self._push_sum,
            nodes=self._context.nodes,
            timeout=deadline.remaining(),
            **self._arguments.for_engine(self._rank, self._members, self._together_from),
        )

    @property
    def _first_number(self) -> int:
        return self._together_from

    # ------------------------------------------------------------------------------------------------ calls

    def start(self, values: Any, *, timeout: float | None = None) -> None:
        """Start a step. If a rank has died, wait for the survivors, at most `timeout` seconds."""

        def action() -> None:
            self._check_not_left()
            core = self._notified_side
            if self._catches_up:
                raise RuntimeError(f"{self.name!r}: start: the last step is not done; call wait on `request` first")
            if self._steps >= self._together_from:
                core.start(values)
            self._begun = np.array(values).reshape(-1)
            self._steps += 1

        self._run(action, self.deadline(timeout))

    @property
    def _catches_up(self) -> bool:
        """Whether this rank is behind after a death, so that its open step has no neighbors."""
        return self._begun is not None and self._steps <= self._together_from

    def test(self) -> bool:

        def action() -> bool:
            core = self._notified_side
            return self._catches_up or core.test()

        return self._run(action, Deadline(self._context.timeout))

    def wait(self, out: Array, *, timeout: float | None = None) -> None:
        deadline = self.deadline(timeout)

        def action() -> None:
            core = self._notified_side
            if self._catches_up:
                self._give(self._begun, out)
            else:
                core.wait(out, timeout=seconds_of(deadline))
                self._weight = core.weight
            self._begun = None
            if self._newest is None:
                self._newest = np.empty_like(out.reshape(-1))
            np.copyto(self._newest, out.reshape(-1))

        self._run(action, deadline)

    def final(self, out: Array, *, timeout: float | None = None) -> None:
        """Write the final model to `out`. After a death, the model lacks the messages for the next step."""
        deadline = self.deadline(timeout)

        def action() -> None:
            core = self._engine_side
            if core.steps == 0:  # no step since the death
                self._give_last(out)
                return
            core.final(out, timeout=seconds_of(deadline))
            self._weight = core.weight

        if not self._left:
            return self._run(action, deadline)
        try:
            action()
        except (RankFailedError, ClosedError):  # a rank that has left takes no part in a recovery
            self._give_last(out)

    def _give_last(self, out: Array) -> None:
        """Write the model of the open step, or the newest result if no step is open."""
        last = self._newest if self._begun is None else self._begun
        if last is None:
            raise RuntimeError(f"{self.name!r}: final: no step was started; call start first")
        self._give(last, out)

    def _give(self, model: Array | None, out: Array) -> None:
        """Write a kept model, and reset push-sum's weight."""
        assert model is not None
        np.copyto(out.reshape(-1), model)
        self._weight = 1.0

    # ------------------------------------------------------------------------------------------------ recovering

    def read_state(self, lost: tuple[int, ...]) -> dict[str, Any]:
        del lost
        if self._core is not None:
            self._waited += self._core.statistics()["waited"]
            self._core = None
        return {"left": self._left, "done": self._steps - (self._begun is not None)}

    def fill(self, states: list[dict[str, Any]], deadline: Deadline) -> None:
        """See `Recoverable.fill`. Each survivor keeps its own model. Newcomers begin at the donor's step."""
        del deadline
        self._together_from = max(state["done"] for state in states if not state["left"])
        if self._membership.is_joining:
            self._steps = states[0]["done"]

    def position(self) -> Array | None:
        return self._newest

    def take_position(self, position: Array) -> None:
        self._newest = position

    def remake(self, arguments: NeighborhoodArguments, deadline: Deadline) -> None:
        """See `Recoverable.remake`. The weights of push-sum start again at 1."""
        super().remake(arguments, deadline)
        self._weight = 1.0

    def resume(self) -> None:
        super().resume()
        if self._core is not None and not self._left and self._begun is not None and not self._catches_up:
            self._core.start(self._begun)

    # ------------------------------------------------------------------------------------------------ the state

    def statistics(self) -> dict[str, Any]:
        counts = {"waited": 0.0, "memory_bytes": 0} if self._core is None else self._core.statistics()
        return counts | {"waited": counts["waited"] + self._waited, "steps": self._steps}

    @property
    def steps(self) -> int:
        return self._steps

    @property
    def weight(self) -> float:
        """The weight of the newest result, for push-sum."""
        return self._weight
