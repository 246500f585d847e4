"""The state that a rank keeps of a partial allreduce, to continue in a new one after a death.

Each rank keeps its contributions until a completed round contains them. After a death, it contributes the kept ones
again. A round that completed on one survivor completes on all. A rank can lack at most one round, the newest,
because each round needs messages from every node. Methods are called under the collective's lock.
"""

from __future__ import annotations

import contextlib
import pickle
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..agreement.continuing import Continuing
from ..support.errors import RankFailedError
from .arguments import PartialAllreduceArguments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .. import _core
    from ..context import Context
    from ..support.deadline import Deadline
    from ..support.typing import Array

KEPT_BEFORE_LOOKUP = 4
"""A rank that keeps more contributions asks the engine which of them are in completed rounds."""
SUMMED_COUNTERS = ("included", "late", "missed", "overrun", "waited")
"""Counters summed over the former collectives."""


@dataclass(eq=False)
class Call:
    """A call that waits for a round. `info` describes the round once it is complete."""

    handle: _core.Round | None = None  # its request in the engine's collective
    number: int = 0  # the number of its contribution there
    late: bool = False
    delivered: bool = False  # whether a completed round has its contribution
    info: _core.RoundInfo | None = None
    has_result: bool = True  # False if a recovery has completed it and the application lacks the result


@dataclass(eq=False)
class Contribution:
    """A contribution that no round is known to contain."""

    values: Array
    call: Call
    number: int | None = None  # in the engine's collective, from 1; None: the engine does not have it


class Newest(NamedTuple):
    """The newest completed round, with the original numbers of ranks and rounds."""

    info: _core.RoundInfo
    flush: bool
    result: tuple[bytes, int] | None  # accumulators and a divisor; None without contributors


class Unused(NamedTuple):
    """Results that the application has received but not used, so that a newcomer must receive them too."""

    result: Array | None  # the sum of the results of these rounds
    rounds: int
    flushed: bool  # whether a completed flush has unused results


class Position(NamedTuple):
    """The state of a survivor's `Recovery` from which a newcomer continues."""

    completed: int
    missed: int
    newest: Newest | None
    latest: Newest | None
    sums: list[tuple[bytes, int]]
    pending: Array | None
    flushed: bool


class Recovery(Continuing[PartialAllreduceArguments, "_core.PartialAllreduce"]):
    """One rank's side of a partial allreduce that continues after deaths."""

    def __init__(self, context: Context, arguments: PartialAllreduceArguments, deadline: Deadline) -> None:
        self._base = 0  # rounds before the first of the engine's collective
        self._lost: tuple[int, ...] = ()  # dead ranks since this rank's last call
        self._contributions: list[Contribution] = []
        self._numbered = 0  # number of contributions to the engine's collective
        self._waiting: weakref.WeakSet[Call] = weakref.WeakSet()
        self._awaited: weakref.WeakSet[Call] = weakref.WeakSet()  # completed by a recovery: see `Call.has_result`
        self._flushing = False
        self._flushed: Call | None = None  # the open flush, if a recovery has completed it
        self._counts: dict[str, float] = dict.fromkeys(SUMMED_COUNTERS, 0)  # counters of former collectives
        self._stragglers: list[tuple[int, int, int]] = []  # ... by the ranks' original numbers
        # State at the time when the engine's collective stopped:
        self._completed = 0
        self._taken = 0  # number of the newest contribution in the next round
        self._lacking = 0
        self._newest: Newest | None = None
        self._sums: list[tuple[bytes, int]] = []  # results of the rounds that this rank has not received, with divisors
        self._missed = 0  # the number of these rounds
        self._latest: Newest | None = None  # under missed="latest": their result
        self._pending: Array | None = None  # under missed="sum": the result of calls that a recovery has completed
        self._pending_rounds = 0  # rounds in it
        self._kept_result: Array | None = None  # `result` until the next one
        self._is_behind = False  # on a newcomer: its first call belongs to the newest completed round
        self._drops_first = False  # ... and no round takes its contribution
        self._has_flushed = False  # on a newcomer: its first flush is already complete
        self.whole_call: tuple[Any, ...] | None = None  # the membership's `WholeCall` that has made this collective
        self.unused: Callable[[], Unused | None] = lambda: None
        super().__init__(context, arguments, deadline)

    def _made_for_members(self, deadline: Deadline) -> _core.PartialAllreduce:
        from ..support.native import core

        return core.PartialAllreduce(
            self._context.engine,
            timeout=deadline.remaining(),
            default_timeout=self._context.timeout,
            recoverable=True,
            **self._arguments.for_engine(self._context.nodes),
        )

    @property
    def _first_number(self) -> int:
        return self._base

    # ------------------------------------------------------------------------------------------------ contributions

    def _contribute_now(self, contribution: Contribution, core: _core.PartialAllreduce) -> None:
        """Pass a contribution to the engine's collective, and keep it while a recovery may need it."""
        contribution.number = self._numbered + 1
        try:
            handle = core.contribute(contribution.values)
        except RankFailedError:  # the engine may have it
            self._numbered = core.statistics()["contributions"]
            contribution.number = contribution.number if contribution.number <= self._numbered else None
            raise
        except BaseException:
            contribution.number = None
            raise
        self._numbered += 1
        call = contribution.call
        call.handle, call.number, call.late = handle, self._numbered, handle.late
        if call.late and self._latest is not None and handle.test():  # then `result` is newer
            self._latest = self._kept_result = None
        late = self._arguments.late
        if late == "replace":
            self._contributions = [contribution]
        elif late == "drop" and handle.late:
            self._drop(call)
        elif len(self._contributions) > KEPT_BEFORE_LOOKUP:
            self._forget(core.delivered)

    def _drop(self, call: Call) -> None:
        self._contributions = [one for one in self._contributions if one.call is not call]

    def _forget(self, delivered: int) -> None:
        """Drop the contributions that a completed round contains."""
        for one in self._contributions:
            one.call.delivered = one.number is not None and one.number <= delivered
        self._contributions = [one for one in self._contributions if not one.call.delivered]

    def _complete_behind(self, contribution: Contribution, core: _core.PartialAllreduce) -> None:
        """Complete a newcomer's first call with the newest round. The call's contribution goes into the next round."""
        assert self._newest is not None
        call = contribution.call
        self._is_behind = False
        self._complete(call, self._newest.info, included=False)
        if self._drops_first:
            self._drop(call)
        else:
            self._contribute_now(contribution, core)
        call.handle, call.late = None, True

    # ------------------------------------------------------------------------------------------------ reading

    def read_state(self, lost: tuple[int, ...]) -> dict[str, Any]:
        self._lost = tuple(sorted({*self._lost, *lost}))
        if self._core is not None:
            self._read(self._core)
            self._core = None
        is_done = self._left and not self._contributions
        return {"left": is_done, "completed": self._completed, "rank": self._context.rank, "call": self.whole_call}

    def _read(self, core: _core.PartialAllreduce) -> None:
        state = core.recovery_state()
        for one in self._contributions:
            if one.number is not None and one.number > state["contributions"]:
                one.number = None  # the death came first
        self._completed = self._base + state["completed"]
        self._taken = state["taken"]
        self._lacking = state["lacking"]
        self._missed = state["missed"]
        self._sums = [] if state["sum"] is None else [state["sum"]]
        if state["newest"] is not None:
            info, flush, result = state["newest"]
            self._newest = Newest(self._described(info, ()), flush, result)
            if state["missed"] and self._arguments.missed == "latest":
                self._latest = self._newest
        self._forget(state["delivered"])
        for call in self._open_calls():
            info = None if call.handle is None else call.handle.completed_info()
            if info is not None:
                self._complete(call, self._described(info, self._lost), included=info.included)
        self._complete_delivered()
        if self._flushing and state["flushed"] is not None:
            self._complete_flush(self._described(state["flushed"], self._lost))
        self._keep_result(core)
        counts = core.statistics()
        for name in SUMMED_COUNTERS:
            self._counts[name] += counts[name]
        self._stragglers = self._with_stragglers(counts["stragglers"])

    def _with_stragglers(self, newest: Iterable[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
        """Return the stragglers of the engine's current and former collectives."""
        all_of = {rank: (absent, longest) for rank, absent, longest in self._stragglers}
        for place, absent, longest in newest:
            before = all_of.get(self._members[place], (0, 0))
            all_of[self._members[place]] = before[0] + absent, max(before[1], longest)
        return [(rank, *counts) for rank, counts in all_of.items()]

    def _complete_delivered(self) -> None:
        """Complete interrupted calls whose contributions are in a completed round."""
        for call in self._open_calls():
            if call.handle is None and call.delivered and self._newest is not None:
                self._complete(call, self._newest.info, included=True)

    def _keep_result(self, core: _core.PartialAllreduce) -> None:
        if self._kept_result is not None:
            return
        with contextlib.suppress(RuntimeError):  # no result yet
            self._kept_result = core.result.copy()
            self._kept_result.flags.writeable = False

    def _open_calls(self) -> list[Call]:
        return sorted((call for call in self._waiting if call.info is None), key=lambda call: call.number)

    def _complete(self, call: Call, info: _core.RoundInfo, *, included: bool) -> None:
        """Complete a call without the engine. Its first `wait` receives the result."""
        from ..support.native import core

        missed = max(0, self._missed + self._pending_rounds - 1)
        overrun = missed > self._arguments.history
        call.info = core.restored_round_info(
            *(info.round, info.initiator, included, info.contributors, info.active),
            *(info.staleness, missed, overrun, info.epoch, self._lost),
        )
        call.handle, call.has_result = None, False
        self._waiting.discard(call)
        self._awaited.add(call)
        self._lost = ()
        self._counts["included"] += included
        self._counts["missed"] += missed
        self._counts["overrun"] += overrun
        if self._arguments.late == "drop":
            self._drop(call)

    def _complete_flush(self, info: _core.RoundInfo) -> None:
        self._flushed = Call()
        self._complete(self._flushed, info, included=False)
        self._flushing = False
        self._contributions.clear()

    def _described(self, info: _core.RoundInfo, lost: tuple[int, ...], missed: int = 0) -> _core.RoundInfo:
        """Describe a round with the original numbers of ranks and rounds. `missed` is added to its missed rounds."""
        from ..support.native import core

        return core.restored_round_info(
            info.round + self._base,
            self._members[info.initiator] if info.initiator >= 0 else info.initiator,
            info.included,
            [self._members[rank] for rank in info.contributors],
            info.active,
            info.staleness,
            info.missed + missed,
            info.overrun,
            self._epoch,
            lost,
        )

    # ------------------------------------------------------------------------------------------------ continuing

    def fill(self, states: list[dict[str, Any]], deadline: Deadline) -> None:
        newest = max(state["completed"] for state in states)
        holder = next(state["rank"] for state in states if state["completed"] == newest)
        if all(state["completed"] == newest for state in states):
            self._completed = newest
            return
        received = self._received_from(holder, deadline)
        if self._completed == newest or self._membership.is_joining:
            self._completed = newest
            return
        assert self._completed == newest - 1
        self._completed = newest
        self._newest = received
        self._missed += 1
        if self._arguments.missed == "latest":
            self._latest = received
        elif received.result is not None:
            self._sums.append(received.result)
        is_in = self._rank in received.info.contributors
        self._lacking = 0 if is_in else self._lacking
        if is_in:
            self._forget(self._taken)
        for call in self._open_calls():
            if call.handle is not None or call.delivered:  # the call had arrived in this round
                self._complete(call, received.info, included=call.delivered)
        if self._flushing and received.flush:
            self._complete_flush(received.info)

    def _received_from(self, holder: int, deadline: Deadline) -> Newest:
        """Return the newest round, which rank `holder` sends to all ranks; collective."""
        buffer = self._arguments.like.buffer
        length = 4096 + 8 * self._context.communicator.size + buffer.count * max(8, buffer.dtype.itemsize)
        sent = pickle.dumps(self._newest) if self._context.rank == holder else b""
        values = np.zeros(length, np.uint8)
        values[: len(sent)] = np.frombuffer(sent, np.uint8)
        result = self.shared_bytes(values, f"the newest round of {self._arguments.name!r}", deadline)
        received: Newest = pickle.loads(result.tobytes())  # ignores the trailing zeros
        return received

    def position(self) -> Position:
        pending, latest, missed = self._pending, self._latest, self._missed + self._pending_rounds
        unused = self.unused() or Unused(None, 0, flushed=False)
        if unused.result is not None and self._arguments.missed == "sum":
            pending = self._added_to_pending(unused.result)
        elif unused.result is not None:
            latest = latest or self._newest
        flushed = unused.flushed or self._has_flushed or self._flushed is not None
        return Position(*(self._completed, missed + unused.rounds, self._newest, latest, self._sums, pending, flushed))

    def take_position(self, position: Position) -> None:
        self._completed, self._missed, self._newest, self._latest, self._sums, self._pending, self._has_flushed = (
            position
        )
        if self._newest is not None and (self._missed > 0 or self._pending is not None):
            repeats = self._rank in self._newest.info.contributors  # the dead rank has contributed to the same step
            self._is_behind, self._drops_first = True, repeats or self._arguments.late == "drop"

    def remake(self, arguments: PartialAllreduceArguments, deadline: Deadline) -> None:
        self._arguments = arguments
        self._base = self._completed
        self._numbered = self._taken = 0
        for one in self._contributions:
            one.number = None
        core = self._made(deadline)
        core.continue_from(self._lacking, self._missed, None, 1)
        for values, divisor in self._sums:
            core.continue_from(self._lacking, 0, values, divisor)
        if arguments.missed == "sum" and (self._is_behind or any(not call.has_result for call in self._awaited)):
            core.receive_pending()
            self._pending = self._added_to_pending(core.result)
            self._pending_rounds, self._missed = self._pending_rounds + self._missed, 0
        if arguments.late != "accumulate":
            self._contributions = self._contributions[-1:]
        for call in self._open_calls():
            call.handle = None
        for one in self._contributions:
            if one.call.info is not None or one.call.late:
                core.deposit(one.values)
                self._numbered += 1
                one.number = self._numbered
        self._core = core

    def resume(self) -> None:
        core = self._core
        assert core is not None
        for one in [one for one in self._contributions if one.number is None]:
            self._contribute_now(one, core)
        calls = [one.call for one in self._contributions if one.call.handle is not None]
        for call in self._open_calls():
            if call.handle is None and calls:  # newer data has replaced the call's data
                call.handle, call.number = calls[-1].handle, calls[-1].number
        if self._flushing:
            core.start_flush()
        if self._left:
            core.leave()

    # ------------------------------------------------------------------------------------------------ results

    def _receive(self, call: Call) -> None:
        """Set `result` for a call that a recovery has completed, unless a later call has received it."""
        if call.has_result:
            return
        core = self._engine_side
        if self._arguments.missed == "sum":
            if self._pending is None:  # an earlier call has received it
                buffer = self._arguments.like.buffer
                self._pending = self._added_to_pending(np.zeros(buffer.shape, buffer.dtype))
            self._kept_result, self._pending, self._pending_rounds = self._pending, None, 0
        elif self._latest is not None:
            core.receive_pending()  # the next call does not miss these rounds
            core.set_result(*(self._latest.result or (None, 1)))
            self._kept_result = None
        self._latest = None
        call.has_result = True

    def _added_to_pending(self, result: Array) -> Array:
        """Return the sum of `result` and the pending result, as a read-only array."""
        total = result.copy() if self._pending is None else np.asarray(result + self._pending)
        total.flags.writeable = False
        return total
