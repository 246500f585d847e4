"""Pairwise averaging on a communicator with `on_failure="continue"`.

The neighbors of a dead rank become neighbors of each other, and each survivor continues with its own model. If a death
interrupts an average, only one of its two models may have changed.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..agreement.continuing import Continuing
from ..support.buffers import array_of, as_bytes_exporter
from ..support.deadline import Deadline
from ..support.errors import RankFailedError
from .equalizer import Equalizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .. import _core
    from ..context import Context
    from ..support.typing import Array
    from .arguments import PairwiseArguments

LARGEST_COUNTERS = ("staleness_max",)
"""Counters that are maxima; all others but `memory_bytes` are summed over the former collectives."""


class Position(NamedTuple):
    """The data that a newcomer takes over from a survivor."""

    model: Array
    mean: Array | None  # the mean of an open `equalize` call that is completed
    equalized: int
    open_call: int | None


class ContinuingPairs(Continuing["PairwiseArguments", "_core.PairwiseAveraging"]):
    """The engine's pairwise averaging and `equalize`, with calls that recover if a rank has died."""

    def __init__(self, context: Context, arguments: PairwiseArguments, deadline: Deadline) -> None:
        self._model = array_of(arguments.initial.array)  # the initial model of the engine's collective
        self._equalizer: Equalizer | None = None
        self._equalizing = threading.RLock()  # held by a thread in `equalize`; other threads do not wait for it
        assert context.membership is not None
        self._active = context.membership.members  # members that have not left
        self._equalized = 0  # completed calls of `equalize`
        self._open_call: int | None = None  # the number of the call that has reached its limit
        self._mean = self._model  # of the newest call
        self._counts: dict[str, Any] = {}  # counters of former collectives
        self._waited_in_rounds = 0.0  # ... and seconds in their `equalize`
        super().__init__(context, arguments, deadline)

    def _made_for_members(self, deadline: Deadline) -> _core.PairwiseAveraging:
        from ..support.native import core

        made = core.PairwiseAveraging(
            engine=self._context.engine,
            nodes=self._context.nodes,
            timeout=deadline.remaining(),
            initial=as_bytes_exporter(self._model.astype(self._arguments.initial.buffer.dtype)),
            **self._arguments.for_engine(self._rank, self._members, self._active),
        )
        self.held_dtype_name = made.held_dtype_name
        is_first, self._core = self._equalizer is None, made  # averages begin now
        try:
            count = self._arguments.initial.buffer.count
            self._equalizer = Equalizer(self._context, made, count=count, name=self.name, deadline=deadline)
        except BaseException:
            if is_first:
                made.leave()
            raise
        return made

    # ------------------------------------------------------------------------------------------------ calls

    @contextlib.contextmanager
    def _exclusively(self) -> Iterator[None]:
        """Let one thread at a time into a call, because any thread may call `read` and `apply`."""
        with self._in_use:
            yield

    def read(self, out: Any) -> None:
        self._call(lambda core: core.read(out))

    def apply(self, delta: Any) -> None:
        self._call(lambda core: core.apply(delta))

    def _call(self, use: Callable[[_core.PairwiseAveraging], None]) -> None:
        def action() -> None:
            self._check_not_left()
            use(self._notified_side)

        self._run(action, Deadline(self._context.timeout))

    def equalize(self, deadline: Deadline) -> Array:
        """See `PairwiseAveraging.equalize`. The mean has the dtype in which the engine holds models."""
        number = self._equalized if self._open_call is None else self._open_call

        def action() -> Array:
            if self._equalized == number:
                self._check_not_left()
                _ = self._notified_side
                self._mean = self._rounds.equalize(deadline)
                self._equalized += 1
            return self._mean

        self._open_call = number
        try:
            return self._run(action, deadline, lock=self._equalizing)
        finally:
            if self._equalized > number:
                self._open_call = None

    @property
    def _rounds(self) -> Equalizer:
        assert self._equalizer is not None
        return self._equalizer

    def leave(self) -> None:
        self._end(abort=False)

    def abort(self) -> None:
        self._end(abort=True)

    def _end(self, *, abort: bool) -> None:
        if self._left or not self._in_use.acquire(blocking=not self._membership.is_recovering):
            self._left = True  # during a recovery, `stopped` leaves later
            return
        try:
            self._left = True
            if self._core is not None:
                try:
                    if self._membership.replaces and not abort:
                        self._model = self._read(self._core)  # for a newcomer
                finally:
                    self._leave(abort=abort)
        finally:
            self._in_use.release()

    def _leave(self, *, abort: bool = False) -> None:
        assert self._core is not None
        for end in (self._core.leave, self._rounds.abort if abort else self._rounds.leave):
            with contextlib.suppress(RankFailedError):
                end()

    # ------------------------------------------------------------------------------------------------ recovering

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        with self._equalizing, super().stopped():
            yield

    def read_state(self, lost: tuple[int, ...]) -> dict[str, Any]:
        del lost
        if self._core is not None:
            self._counts = self._with(self._core.statistics())
            self._waited_in_rounds += self._rounds.statistics_of_rounds()["waited"]
            if not self._left:
                self._core.set_told([])
                self._model = self._read(self._core)
            self._core = None
        return {"left": self._left, "member": self._rank, "equalized": self._equalized}

    def _read(self, core: _core.PairwiseAveraging) -> Array:
        held = np.empty(self._arguments.initial.buffer.count, self.held_dtype_name)
        while True:
            try:
                core.read_kept(held)
            except RankFailedError as error:  # raised once per dead rank
                core.set_told(error.ranks)
            else:
                return held

    def _with(self, counts: dict[str, Any]) -> dict[str, Any]:
        """Return `counts`, of the current engine's collective, combined with the counters of former ones."""
        total = counts.copy()
        for name, before in self._counts.items():
            if name in LARGEST_COUNTERS:
                total[name] = max(before, counts[name])
            elif name != "memory_bytes":
                total[name] = before + counts[name]
        return total

    def fill(self, states: list[dict[str, Any]], deadline: Deadline) -> None:
        """See `Recoverable.fill`. Complete an interrupted `equalize` on all ranks, or undo it on all."""
        del deadline
        gone = {state["member"] for state in states if state["left"]}  # a rank that joins the creation has no state
        self._active = tuple(rank for rank in self._membership.members if rank not in gone)
        replaced = None if self._equalizer is None else self._equalizer.replaced
        if self._left or replaced is None:
            return
        before, mean = replaced
        if max(state["equalized"] for state in states) > self._equalized:
            self._equalized, self._mean = self._equalized + 1, mean
        else:
            self._model = self._model + (before - mean)
        self._rounds.replaced = None

    def position(self) -> Position:
        is_completed = self._open_call is not None and self._open_call < self._equalized
        return Position(self._model, self._mean if is_completed else None, self._equalized, self._open_call)

    def take_position(self, position: Position) -> None:
        """See `Recoverable.take_position`. If the donor's open `equalize` is complete, so is this rank's."""
        self._model, mean, self._equalized, self._open_call = position
        self._mean = self._mean if mean is None else mean

    # ------------------------------------------------------------------------------------------------ the state

    def statistics(self) -> dict[str, Any]:
        return self._counts | {"memory_bytes": 0} if self._core is None else self._with(self._core.statistics())

    def statistics_of_rounds(self) -> dict[str, Any]:
        counts = self._rounds.statistics_of_rounds()
        return counts | {"waited": counts["waited"] + self._waited_in_rounds}

    @property
    def failed(self) -> bool:
        return self._rounds.failed

    def set_told(self, dead: Sequence[int]) -> None:
        """Do nothing, because calls continue after a death without an error."""
