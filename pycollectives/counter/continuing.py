"""The shared counter on a communicator with `on_failure="continue"`.

The survivors make the counter again with the greatest value that any of them knows. Rank 0's node knows it exactly. A
call that rank 0 had answered or counted before the death keeps its numbers. Any other call is repeated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..agreement.continuing import Continuing, seconds_of
from .arguments import CounterArguments

if TYPE_CHECKING:
    from .. import _core
    from ..context import Context
    from ..support.deadline import Deadline


def engine_side(context: Context, name: str, start: int, deadline: Deadline) -> _core.SharedCounter:
    """Make the engine's counter; collective."""
    from ..support.native import core

    return core.SharedCounter(context.engine, start=start, nodes=context.nodes, timeout=deadline.remaining(), name=name)


class Request(NamedTuple):
    """A call whose result no caller has received."""

    sequence: int
    n: int
    before: int | None  # the result, if rank 0 has answered


class ContinuingCounter(Continuing[CounterArguments, "_core.SharedCounter"]):
    """Calls of the engine's counter that recover if a rank has died."""

    _value: int | None = None  # the start of the next engine's counter
    _state: dict[str, Any] | None = None  # for the survivors, from a death until all have continued
    _request: Request | None = None  # the call that the death interrupted
    _given: tuple[int, int] | None = None  # its `n` and its result, which the next call returns
    _waited = 0.0  # seconds in former collectives

    def _made_for_members(self, deadline: Deadline) -> _core.SharedCounter:
        start = self._arguments.start if self._value is None else self._value
        return engine_side(self._context, self._arguments.name, start, deadline)

    def fetch_add(self, n: int, *, timeout: float | None = None) -> int:
        deadline = self.deadline(timeout)

        def action() -> int:
            self._check_not_left()
            core = self._notified_side
            if self._given is None:
                return core.fetch_add(n, timeout=seconds_of(deadline))
            given_n, before = self._given
            if n != given_n:
                raise ValueError(
                    f"{self.name!r}: fetch_add({given_n}) was given up before its answer came; expected the same call, "
                    f"got fetch_add({n})"
                )
            self._given = None
            return before

        return self._run(action, deadline)

    # ------------------------------------------------------------------------------------------------ recovering

    def read_state(self, lost: tuple[int, ...]) -> dict[str, Any]:
        del lost
        if self._state is None:
            assert self._core is not None
            state = self._core.state()
            served = zip(self._members, state["served"], strict=False)
            self._state = {
                "known": state["known"],
                "served": [[rank, sequence, before] for rank, (sequence, before) in served if sequence > 0],
            }
            self._request = None if state["request"] is None else Request(*state["request"])
            self._waited += self._core.statistics()["waited"]
        self._core = None
        return {"left": self._left, **self._state}

    def fill(self, states: list[dict[str, Any]], deadline: Deadline) -> None:
        del deadline
        self._value = max(state["known"] for state in states)
        served = [entry for state in states for entry in state["served"]]
        if self._state is not None:  # for the next attempt: the rank that knew it may be dead then
            self._state |= {"known": self._value, "served": served}
        if self._request is None:
            return
        found = [before for rank, sequence, before in served if self._is_request(rank, sequence)]
        before = self._request.before if self._request.before is not None else next(iter(found), None)
        if before is not None:
            self._given = self._request.n, before

    def _is_request(self, rank: int, sequence: int) -> bool:
        return self._request is not None and (rank, sequence) == (self._rank, self._request.sequence)

    def resume(self) -> None:
        super().resume()
        self._state = self._request = None

    # ------------------------------------------------------------------------------------------------ the state

    def statistics(self) -> dict[str, Any]:
        counts = {"waited": 0.0, "memory_bytes": 0} if self._core is None else self._core.statistics()
        return counts | {"waited": counts["waited"] + self._waited}
