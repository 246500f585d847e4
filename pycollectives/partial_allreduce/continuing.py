"""The partial allreduce of a communicator with `on_failure="continue"`.

A death ends the engine's collective. The survivors make a new one (recovery.py), whose rounds continue the numbering,
and calls continue in it.

Before the first death, `allreduce` is the engine's own method (direct calls; csrc/bindings/direct_calls.h), unless this
object must keep state. Every other call first ends direct calls, and resumes them if it leaves no state.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ..agreement.continuing import seconds_of
from ..request import Request
from ..support import buffers
from ..support.deadline import Deadline
from ..support.device_streams import refuse_stream
from ..support.errors import ClosedError, RankFailedError, StallError
from .recovery import SUMMED_COUNTERS, Call, Contribution, Recovery

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .. import _core
    from ..context import Context
    from ..support.typing import Array
    from .arguments import PartialAllreduceArguments

T = TypeVar("T")


class ContinuingRequest(Request):
    """The request of one contribution."""

    def __init__(self, collective: ContinuingAllreduce, call: Call) -> None:
        self._collective = collective
        self._call = call

    def wait(self, *, timeout: float | None = None) -> _core.RoundInfo:
        return self._collective.wait(self._call, self._collective.deadline(timeout))

    def test(self) -> bool:
        return self._collective.test(self._call)

    @property
    def late(self) -> bool:
        """True if the call came after a round whose result this rank has not received. A late call returns at once."""
        return self._call.late

    @property
    def default_timeout(self) -> float | None:
        return self._collective.default_timeout

    def __repr__(self) -> str:
        return f"<Round of {self._collective.name!r}>"


class ContinuingAllreduce(Recovery):
    """The calls of `PartialAllreduce`, which recover if a rank has died."""

    def __init__(self, context: Context, arguments: PartialAllreduceArguments, deadline: Deadline) -> None:
        self._contributed = 0
        self._contributor: int | None = None  # the thread that has contributed since the last flush
        self._is_direct = False
        self._interrupted: Call | None = None  # the direct call that a death interrupted
        self.when_remade: Callable[[], object] = lambda: None
        self.allreduce: Callable[..., tuple[Any, _core.RoundInfo]] = self._allreduce
        super().__init__(context, arguments, deadline)

    def _made_for_members(self, deadline: Deadline) -> _core.PartialAllreduce:
        core = super()._made_for_members(deadline)
        if self._epoch > 0:
            self.allreduce = self._allreduce
            self.when_remade()
            return core
        of_self = weakref.ref(self)

        def fallback(
            x: Any, out: Any, timeout: Any, stream: Any, dead: list[int] | None
        ) -> tuple[Any, _core.RoundInfo]:
            continuing = of_self()
            if continuing is None:
                raise ClosedError(f"{core.name!r} is closed")
            if dead is None:
                return continuing._allreduce(x, out, timeout=timeout, stream=stream)
            return continuing._allreduce_again(x, out, timeout, RankFailedError("a rank has died", dead))

        core.set_fallback(fallback)
        self.allreduce = core.allreduce
        self._is_direct = True
        core.begin_direct()
        return core

    # ------------------------------------------------------------------------------------------------ direct calls

    def _end_direct(self, *, waits: bool = False) -> None:
        """Take over the state of direct calls. If `waits`, first wait for another thread's direct call."""
        if not self._is_direct or self._core is None:
            return
        core = self._core
        kept = core.end_direct(waits=waits)
        self._is_direct = False
        if core.contributions > self._numbered:
            self._contributor = core.direct_user
        self._contributed += core.contributions - self._numbered
        self._numbered = core.contributions
        for number, values, is_open, has_died, handle in kept:
            call = Call(handle, number, late=not is_open)
            self._contributions.append(Contribution(values, call, number))
            if is_open:
                self._waiting.add(call)
            if has_died:
                self._interrupted = call

    def _begin_direct(self) -> None:
        """Make `allreduce` the engine's method, if this object keeps no state."""
        is_kept = self._contributions or self._flushing or self._flushed is not None or len(self._waiting) > 0
        if self._epoch > 0 or is_kept or self._left or self._is_direct or self._core is None:
            return
        self._is_direct = True
        self._core.begin_direct()

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        with super().stopped():
            self._end_direct(waits=True)
            yield

    # ------------------------------------------------------------------------------------------------ contributing

    def contribute(self, x: Any, *, stream: Any = None) -> ContinuingRequest:
        refuse_stream(stream, self.name)
        call, _ = self._contribute(self._checked(x).copy(), Deadline(self._context.timeout))
        return ContinuingRequest(self, call)

    def _allreduce(
        self, x: Any, out: Any | None = None, *, timeout: float | None = None, stream: Any = None
    ) -> tuple[Any, _core.RoundInfo]:
        refuse_stream(stream, self.name)
        deadline = self.deadline(timeout)
        into = None if out is None else self._arguments.writable(out)
        return self._received(self._round_of(self._checked(x), deadline), out, into)

    def _allreduce_again(
        self, x: Any, out: Any | None, timeout: float, death: RankFailedError
    ) -> tuple[Any, _core.RoundInfo]:
        """After a death, complete a direct call of epoch 0. `timeout` is the call's remaining time in seconds."""
        deadline = self.deadline(timeout)
        with self._in_use:
            self._end_direct()
            call, self._interrupted = self._interrupted, None
        if call is None:  # no data was contributed
            self._membership.recover(death, 0, deadline)
            return self._allreduce(x, out, timeout=seconds_of(deadline))
        into = None if out is None else self._arguments.writable(out)
        with self._advising():
            self._membership.recover(death, 0, deadline)
            info = self.wait(call, deadline)
        return self._received(info, out, into)

    def _received(self, info: _core.RoundInfo, out: Any | None, into: Array | None) -> tuple[Any, _core.RoundInfo]:
        """Return the result of an `allreduce` whose round `info` describes."""
        if into is None:
            return self.result, info
        np.copyto(into, self.result)
        return out if isinstance(out, np.ndarray) and out.shape == into.shape else into, info

    def _round_of(self, values: Array, deadline: Deadline) -> _core.RoundInfo:
        """Contribute and wait. Copy the values if they are still needed, because the caller may overwrite them."""
        call, contribution = self._contribute(values, deadline)
        try:
            with self._advising():
                return self.wait(call, deadline)
        finally:
            if contribution in self._contributions:
                contribution.values = values.copy()

    @contextlib.contextmanager
    def _advising(self) -> Iterator[None]:
        """Add to a StallError that the data has been contributed."""
        try:
            yield
        except StallError as error:
            error.advise("The data is contributed: do not contribute it again")
            raise

    def _contribute(self, values: Array, deadline: Deadline) -> tuple[Call, Contribution]:
        call = Call()
        contribution = Contribution(values, call)
        is_kept = False

        def action() -> None:
            nonlocal is_kept
            if is_kept:  # the recovery has contributed it
                return
            self._check_not_left()
            core = self._engine_side
            self._end_direct()
            self._contributions.append(contribution)
            self._has_flushed = False
            self._waiting.add(call)
            is_kept = True
            try:
                (self._complete_behind if self._is_behind else self._contribute_now)(contribution, core)
            except RankFailedError:
                self._note_contribution()
                raise
            except BaseException:
                self._drop(call)
                self._waiting.discard(call)
                is_kept = False
                raise
            self._note_contribution()

        try:
            self._run(action, deadline)
        except BaseException as error:
            if is_kept:
                contribution.values = values.copy()
                if isinstance(error, StallError):
                    error.advise("The data is contributed: do not contribute it again")
            raise
        return call, contribution

    def _note_contribution(self) -> None:
        self._contributed += 1
        self._contributor = threading.get_ident()

    def _checked(self, x: Any) -> Array:
        return buffers.matching_array(x, self._arguments.like.buffer, name=self.name)

    # ------------------------------------------------------------------------------------------------ waiting

    def wait(self, call: Call, deadline: Deadline) -> _core.RoundInfo:

        def action() -> _core.RoundInfo:
            if call.info is None:
                self._finish(call, self._handle_of(call).wait(timeout=seconds_of(deadline)))
            self._receive(call)
            self._begin_direct()
            assert call.info is not None
            return call.info

        return self._run(action, deadline)

    def test(self, call: Call) -> bool:

        def action() -> bool:
            if call.info is None:
                handle = self._handle_of(call)
                if not handle.test():
                    return False
                self._finish(call, handle.wait(timeout=0.0))
            self._receive(call)
            self._begin_direct()
            return True

        return self._run(action, Deadline(self._context.timeout))

    def _handle_of(self, call: Call) -> _core.Round:
        core = self._engine_side
        if call.handle is None:
            self._check_not_left()
            raise RuntimeError(f"{self.name}: a call has no round on {core.name!r} (a defect)")
        return call.handle

    def _finish(self, call: Call, info: _core.RoundInfo) -> None:
        call.info, call.handle = self._described_for_call(info), None
        self._waiting.discard(call)
        self._receive_newer()
        if info.included:
            self._forget(call.number)
        if self._arguments.late == "drop":
            self._drop(call)

    def _receive_newer(self) -> None:
        """Take the result of the engine's collective, including earlier results that this rank has not received."""
        self._kept_result = self._latest = None
        if self._pending is not None:
            self._kept_result, self._pending = self._added_to_pending(self._engine_side.result), None
            self._pending_rounds = 0

    def _described_for_call(self, info: _core.RoundInfo) -> _core.RoundInfo:
        if self._epoch == 0:
            return info
        lost, self._lost = self._lost, ()
        self._counts["missed"] += self._pending_rounds
        return self._described(info, lost, self._pending_rounds)

    # ------------------------------------------------------------------------------------------------ leaving

    def flush(self, *, timeout: float | None = None) -> _core.RoundInfo:
        deadline = self.deadline(timeout)

        def action() -> _core.RoundInfo:
            if self._flushed is None:
                self._start_flush()
            if self._flushed is None:
                call = Call(info=self._described_for_call(self._engine_side.flush(timeout=seconds_of(deadline))))
                self._flushed = call
                self._receive_newer()
                self._contributions.clear()
            self._receive(self._flushed)
            info, self._flushed = self._flushed.info, None
            self._flushing = False
            self._contributor = None
            self._begin_direct()
            assert info is not None
            return info

        return self._run(action, deadline)

    def start_flush(self) -> None:
        self._run(self._start_flush, Deadline(self._context.timeout))

    def _start_flush(self) -> None:
        if self._flushed is not None:
            return
        self._check_not_left()
        core = self._engine_side
        self._end_direct()
        if (self._is_behind or self._has_flushed) and self._newest is not None:
            has_flushed = self._has_flushed or self._newest.flush  # whether a flush is in the newest round or before it
            self._is_behind = self._has_flushed = False
            if has_flushed:
                self._complete_flush(self._newest.info)
                return
        was_flushing, self._flushing = self._flushing, True
        try:
            core.start_flush()
        except RankFailedError:
            raise
        except BaseException:
            self._flushing = was_flushing
            raise

    def abort(self) -> int:
        if not self._enter_soon():
            self._left = True
            return len(self._contributions)
        try:
            self._left = True
            with contextlib.suppress(RuntimeError):  # another thread is in a call
                self._end_direct()
            kept = len(self._contributions)
            self._contributions.clear()
            return kept if self._core is None else self._core.abort()
        finally:
            self._in_use.release()

    # ------------------------------------------------------------------------------------------------ the state

    @property
    def result(self) -> Array:
        if self._kept_result is not None:
            return self._kept_result
        if self._core is None:
            raise RuntimeError(f"{self.name}: no result yet: contribute and wait first")
        return self._core.result

    def statistics(self) -> dict[str, Any]:
        counts: dict[str, Any] = {"memory_bytes": 0} if self._core is None else self._core.statistics()
        for name in SUMMED_COUNTERS:
            counts[name] = counts.get(name, 0) + self._counts[name]
        stragglers = self._with_stragglers(counts.get("stragglers", ()))
        direct = self._core.contributions - self._numbered if self._is_direct and self._core is not None else 0
        contributions = self._contributed + direct
        return {**counts, "rounds": self.rounds, "contributions": contributions, "stragglers": stragglers}

    @property
    def ended(self) -> bool:
        return self._core is not None and self._core.ended

    @property
    def has_contributed(self) -> bool:
        """Whether this thread has contributed since the last flush."""
        is_direct = self._is_direct and self._core is not None and self._core.has_contributed
        return self._contributor == threading.get_ident() or is_direct

    @property
    def rounds(self) -> int:
        return self._completed if self._core is None else self._base + self._core.rounds
