"""What a rank keeps of a partial allreduce, so that it can continue in another one after a death.

Each rank keeps its contributions until a completed round contains them, and contributes the others again. What
completed on one survivor completes on all: at most one round, the newest, can be missing on a rank, because each round
needs the messages of every node. Methods are called under the collective's lock.
"""

from __future__ import annotations

import contextlib
import math
import pickle
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..support.errors import RankFailedError

if TYPE_CHECKING:
    from .. import _core
    from ..context import Context
    from ..support.deadline import Deadline
    from ..support.typing import Array
    from .arguments import PartialAllreduceArguments

__all__ = ["SUMMED", "Call", "Contribution", "Recovery", "seconds_of"]

MANY = 4
"""Contributions without a known round, after which the engine is asked which of them rounds have taken."""
SUMMED = ("included", "late", "missed", "overrun", "waited")
"""The counters of former collectives that count."""


@dataclass(eq=False)
class Call:
    """A call that waits for a round. `info` describes the round, once it is complete."""

    handle: _core.Round | None = None  # in the engine's collective
    number: int = 0  # of its contribution there
    late: bool = False
    info: _core.RoundInfo | None = None


@dataclass(eq=False)
class Contribution:
    """A contribution that no round is known to contain."""

    values: Array
    call: weakref.ref[Call]
    number: int | None = None  # in the engine's collective, from 1; None: not handed over to it
    arrived: bool = True  # its call was not late


class Newest(NamedTuple):
    """The newest completed round, by the numbers that ranks and rounds had at first."""

    info: _core.RoundInfo
    flush: bool
    values: bytes | None  # accumulators, to be divided; None without contributors
    divisor: int


class Recovery:
    """One rank's side of a partial allreduce that continues; see `membership.Continued`."""

    def __init__(self, context: Context, arguments: PartialAllreduceArguments, deadline: Deadline) -> None:
        """Make the engine's collective; collective."""
        assert context.membership is not None
        self._context = context
        self._membership = context.membership
        self._arguments = arguments
        self._rank = context.communicator.rank
        self._core: _core.PartialAllreduce | None = None  # None: stopped
        self._base = 0  # rounds before the first of the engine's collective
        self._lost: tuple[int, ...] = ()  # since this rank's last call
        self._contributions: list[Contribution] = []
        self._handed_over = 0  # contributions to the engine's collective
        self._calls: weakref.WeakSet[Call] = weakref.WeakSet()  # that wait
        self._flushing = False
        self._flushed: _core.RoundInfo | None = None  # the round of the flush that is under way
        self._left = False
        self._counts: dict[str, float] = dict.fromkeys(SUMMED, 0)  # of former collectives
        # When the engine's collective stopped.
        self._completed = 0
        self._taken = 0  # number of the newest contribution in the round after these
        self._newest: Newest | None = None
        self._sums: list[tuple[bytes, int]] = []  # of the rounds that this rank has not received, with divisors
        self._missed = 0  # the number of these rounds
        self._owes_result = False  # a call has completed since then
        self._shown: Array | None = None  # the result until then
        self._make(deadline)

    def _make(self, deadline: Deadline) -> None:
        from ..support.native import core

        self._members = self._membership.members
        self._epoch = self._membership.epoch
        self._core = core.PartialAllreduce(
            self._context.engine,
            timeout=deadline.remaining(),
            default_timeout=self._context.timeout,
            recoverable=True,
            **self._arguments.for_engine(self._context.nodes),
        )

    @property
    def _engine_side(self) -> _core.PartialAllreduce:
        if self._core is None:
            raise RankFailedError(f"{self._arguments.name}: a rank has died, and the survivors have not continued yet")
        return self._core

    # ------------------------------------------------------------------------------------------------ contributions

    def _hand_over(self, contribution: Contribution) -> None:
        """Give a contribution to the engine's collective, and keep it if it may be needed again."""
        core = self._engine_side
        contribution.number = self._handed_over + 1
        handle = core.contribute(contribution.values)
        self._handed_over += 1
        contribution.arrived = not handle.late
        call = contribution.call()
        if call is not None:
            call.handle, call.number, call.late = handle, self._handed_over, handle.late
        late = self._arguments.late
        if late == "replace":
            self._contributions = [contribution]
        elif late == "drop" and handle.late:
            self._drop(contribution)
        elif len(self._contributions) > MANY:
            self._forget(core.delivered)

    def _hand_over_late(self) -> None:
        """Contribute what late calls had contributed before a death, and no round has taken."""
        for contribution in [one for one in self._contributions if one.number is None]:
            self._hand_over(contribution)

    def _drop(self, contribution: Contribution) -> None:
        self._contributions = [one for one in self._contributions if one is not contribution]

    def _forget(self, delivered: int) -> None:
        """Drop the contributions that a completed round contains."""
        self._contributions = [one for one in self._contributions if one.number is None or one.number > delivered]

    # ------------------------------------------------------------------------------------------------ reading

    def freeze(self, lost: tuple[int, ...]) -> dict[str, Any]:
        """See `Continued.freeze`."""
        self._lost = tuple(sorted({*self._lost, *lost}))
        if self._core is not None:
            self._read(self._core)
            self._core = None
        is_done = self._left and not self._contributions
        return {"left": is_done, "completed": self._completed, "rank": self._context.rank}

    def _read(self, core: _core.PartialAllreduce) -> None:
        found = core.recovered()
        for one in self._contributions:
            if one.number is not None and one.number > found["handed_over"]:
                one.number = None  # the death came first
        self._completed = self._base + found["completed"]
        self._taken = found["taken"]
        self._missed += found["missed"]
        if found["sum"] is not None:
            self._sums.append((found["sum"], 1))
        if found["newest"] is not None:
            info, flush, values, divisor = found["newest"]
            self._newest = Newest(self._described(info, ()), flush, values, divisor)
        for call in self._waiting():
            info = None if call.handle is None else call.handle.recovered()
            if info is not None:
                self._complete(call, self._described(info, self._lost))
        self._forget(found["delivered"])
        self._complete_interrupted()
        if self._flushing and found["flushed"]:
            self._complete_flush()
        self._keep_result(core)
        counts = core.statistics()
        for name in SUMMED:
            self._counts[name] += counts[name]

    def _complete_interrupted(self) -> None:
        """Complete calls that a death has interrupted after a round had taken their contribution."""
        kept = {id(one.call()) for one in self._contributions}
        for call in self._waiting():
            if call.handle is None and id(call) not in kept and self._newest is not None:
                self._complete(call, self._told_of(self._newest.info, included=True))

    def _keep_result(self, core: _core.PartialAllreduce) -> None:
        if self._shown is not None:
            return
        with contextlib.suppress(RuntimeError):  # there is none yet
            self._shown = core.result.copy()
            self._shown.flags.writeable = False

    def _waiting(self) -> list[Call]:
        return sorted((call for call in self._calls if call.info is None), key=lambda call: call.number)

    def _complete(self, call: Call, info: _core.RoundInfo) -> None:
        call.info, call.handle = info, None
        self._calls.discard(call)
        self._owes_result = True
        self._lost = ()

    def _complete_flush(self) -> None:
        assert self._newest is not None
        self._flushed = self._told_of(self._newest.info, included=False)
        self._flushing = False
        self._owes_result = True
        self._lost = ()
        self._contributions.clear()

    def _described(self, info: _core.RoundInfo, lost: tuple[int, ...]) -> _core.RoundInfo:
        """Return the description of a round by the numbers that ranks and rounds had at first."""
        from ..support.native import core

        return core.restored_round_info(
            info.round + self._base,
            self._members[info.initiator] if info.initiator >= 0 else info.initiator,
            info.included,
            [self._members[rank] for rank in info.contributors],
            info.active,
            info.staleness,
            info.missed,
            info.overrun,
            self._epoch,
            lost,
        )

    def _told_of(self, info: _core.RoundInfo, *, included: bool) -> _core.RoundInfo:
        """Return the description of a round for one call, which completes without the engine."""
        from ..support.native import core

        missed = max(0, self._missed - 1)
        return core.restored_round_info(
            *(info.round, info.initiator, included, info.contributors, info.active),
            *(info.staleness, missed, missed > self._arguments.history, info.epoch, self._lost),
        )

    # ------------------------------------------------------------------------------------------------ continuing

    def fill(self, states: list[dict[str, Any]], deadline: Deadline) -> None:
        """See `Continued.fill`."""
        newest = max(state["completed"] for state in states)
        holder = next(state["rank"] for state in states if state["completed"] == newest)
        if all(state["completed"] == newest for state in states):
            return
        received = self._sent_by(holder, deadline)
        if self._completed == newest:
            return
        assert self._completed == newest - 1
        self._completed = newest
        self._newest = received
        self._missed += 1
        if received.values is not None:
            self._sums.append((received.values, received.divisor))
        is_in = self._rank in received.info.contributors
        for call in self._waiting():
            if call.handle is not None:  # it has arrived in this round
                included = is_in and 0 < call.number <= self._taken
                self._complete(call, self._told_of(received.info, included=included))
        if is_in:
            self._forget(self._taken)
            self._complete_interrupted()
        if self._flushing and received.flush:
            self._complete_flush()

    def _sent_by(self, holder: int, deadline: Deadline) -> Newest:
        """Return the newest round of a rank; collective."""
        from ..support.native import core

        buffer = self._arguments.like.buffer
        length = 4096 + 8 * len(self._members) + buffer.count * max(8, buffer.dtype.itemsize)
        sent = pickle.dumps(self._newest) if self._context.rank == holder else b""
        values = np.zeros(length, np.uint8)
        values[: len(sent)] = np.frombuffer(sent, np.uint8)
        arguments = self._context.checked("partial_allreduce", lambda: self._of_bytes(length))
        made = core.PartialAllreduce(
            self._context.engine,
            timeout=deadline.remaining(),
            default_timeout=self._context.timeout,
            **arguments.for_engine(self._context.nodes),
        )
        result, _ = made.allreduce(values, timeout=seconds_of(deadline))
        received: Newest = pickle.loads(result.tobytes())  # ignores the zeros after its end
        made.leave()
        return received

    def _of_bytes(self, length: int) -> PartialAllreduceArguments:
        name = f"the newest round of {self._arguments.name!r}"
        return type(self._arguments)(count=length, dtype=np.uint8, op="BOR", policy="full", name=name)

    def remake(self, arguments: PartialAllreduceArguments, deadline: Deadline) -> None:
        """See `Continued.remake`."""
        self._arguments = arguments
        self._base = self._completed
        self._handed_over = self._taken = 0
        if arguments.late == "replace":
            self._contributions = self._contributions[-1:]
        for contribution in self._contributions:
            contribution.number = None
        for call in self._waiting():
            call.handle = None
        self._make(deadline)
        if self._owes_result and not self._left:
            self._show()
        else:
            for values, divisor in self._sums:
                self._engine_side.owe(values, divisor, 0)
            self._engine_side.owe(None, 1, self._missed)
        self._owes_result = False
        self._sums, self._missed = [], 0

    def _show(self) -> None:
        """Make the result of the calls that have completed without the engine."""
        assert self._newest is not None
        newest = [] if self._newest.values is None else [(self._newest.values, self._newest.divisor)]
        self._engine_side.show(self._sums if self._arguments.missed == "sum" else newest)
        self._shown = None

    def resume(self) -> None:
        """See `Continued.resume`."""
        is_last_chance = self._left or self._flushing
        for contribution in [one for one in self._contributions if one.arrived or is_last_chance]:
            self._hand_over(contribution)
        self._attach()
        if self._flushing:
            self._engine_side.start_flush()
        if self._left:
            self._engine_side.leave()

    def _attach(self) -> None:
        """Let calls whose data newer data has replaced wait for the newest call."""
        waiting = self._waiting()
        newest = next((call for call in reversed(waiting) if call.handle is not None), None)
        for call in waiting:
            if call.handle is None and newest is not None:
                call.handle, call.number = newest.handle, newest.number


def seconds_of(deadline: Deadline) -> float:
    """Return the rest of a deadline for the engine, whose None is another limit."""
    left = deadline.remaining()
    return math.inf if left is None else left
