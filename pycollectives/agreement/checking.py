"""Checks across ranks, for debugging (`PYC_CHECK=1`): the same calls in the same order, the same bits in every round.

At every collective call of a communicator, each rank sends its threads' calls to all other ranks and, for a flush,
hashes of the newest rounds that it has received. Ranks that make different calls get an error instead of waiting for
each other. If a round differs between ranks, the next flush or close detects it.

A rank may leave a collective before the other ranks, which then do not wait for its flush. Threads of a rank may flush
different collectives in any order: if a rank has several threads, ranks that make different calls repeat the comparison
until their calls agree.

A comparison needs all ranks: no rank returns from `flush` or `close` before all have reached a collective call, or
while another rank waits for a round. If a comparison is no longer possible, because a rank has left the communicator or
reached a time limit, the program gets a warning and continues without checks. An interrupted comparison makes its
engine unusable, so the checks have their own engine.
"""

from __future__ import annotations

import json
import threading
import time
import warnings
import weakref
from typing import TYPE_CHECKING, Any, ClassVar

from ..support.deadline import Deadline
from ..support.errors import ClosedError, MismatchError, StallError
from .calls import DETAILS, Call, may_go_on, notes_of
from .consistency import describe_values, encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .. import _core

KEPT_ROUNDS = 64
"""The number of newest rounds of a collective to compare. Their hashes fit into one comparison of 4096 bytes."""

MAX_LEFT = 64
"""The maximum number of collectives that this rank has left, the newest ones, in one comparison."""

MAX_CALLS = 16
"""The maximum number of threads of a rank in one comparison; they share `KEPT_ROUNDS`."""

LONGEST_PAUSE = 0.01
"""The longest pause, in seconds, between comparisons of ranks whose threads make different calls."""


class NoChecks:
    """The checks of a communicator without `PYC_CHECK`: they do nothing."""

    on: ClassVar[bool] = False

    def meet(self, call: str, timeout: float | None) -> None:
        """Do nothing."""

    def finish(self, timeout: float | None) -> None:
        """Do nothing."""

    def leave(self) -> None:
        """Do nothing."""


class Checks(NoChecks):
    """One rank's part in the checks of a communicator."""

    on = True

    def __init__(self, engine: _core.Engine, timeout: float | None) -> None:
        """Use `engine` only for the checks; `timeout` is the default limit of calls."""
        self.timeout = timeout
        self._engine = engine
        self._turn = threading.Lock()  # held during a comparison, so that threads take turns
        self._names: list[str] = []  # of the collectives, in the order of creation
        self._left: dict[int, None] = {}  # collectives, the newest last
        self._calls: list[Call] = []  # the pending calls of this rank's threads
        self._threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
        self._last = "this is the first"
        self._different = ""  # what threads called in the last comparison, if no call was complete
        self._over = False

    def meet(self, call: str, timeout: float | None) -> None:
        """Report a call, and return when all ranks make it. If ranks make different calls, raise MismatchError."""
        self.try_to_meet(Call(call), timeout)

    def finish(self, timeout: float | None) -> None:
        """Check that all ranks close the communicator, and end the checks."""
        deadline = Deadline(timeout)
        self.try_to_meet(Call("close of the communicator"), deadline.remaining())
        if self._over:
            self._engine.abort()
        else:
            self._over = True  # for other threads, in calls that no other rank will make
            self._engine.close(timeout=deadline.remaining())

    def leave(self) -> None:
        """Notify the other ranks, without waiting, that this rank takes part in no further comparison."""
        self._over = True
        self._engine.abort()

    def register(self, name: str) -> int:
        """Register a collective for comparisons of its calls; return its number, in the order of creation."""
        self._names.append(name)
        return len(self._names) - 1

    def note_left(self, number: int) -> None:
        self._left[number] = None

    def note_thread(self) -> None:
        self._threads.add(threading.current_thread())

    def named(self, call: Call) -> str:
        return call.what if call.of is None else f"{call.what} of {self._names[call.of]!r} (collective {call.of})"

    def try_to_meet(self, call: Call, timeout: float | None) -> dict[int, dict[str, Any]]:
        """Compare a call with the other ranks; if that fails or takes too long, warn that the checks have ended.

        Return the notes of the ranks that make this call, by rank; empty once the checks have ended. If ranks make
        different calls, all ranks raise MismatchError, and the checks end.
        """
        try:
            return self._meet(call, timeout)
        except (StallError, ClosedError) as error:
            why = str(error).removesuffix("; the communicator is unusable now")  # the engine of the checks
            why = f"{why}; {self._different}" if self._different else why
            warnings.warn(f"PYC_CHECK: no more checks on this communicator: {why}", RuntimeWarning, stacklevel=4)
            return {}

    def _meet(self, call: Call, timeout: float | None) -> dict[int, dict[str, Any]]:
        deadline = Deadline(timeout)
        pause = 0.0
        self.note_thread()
        self._calls.append(call)
        try:
            while not self._over and call.replies is None:
                with self._turn:  # its holder reports the calls of all threads
                    if not self._over and call.replies is None:
                        self._compare(call, deadline)
                if call.replies is None:
                    time.sleep(pause)
                    pause = min(LONGEST_PAUSE, pause + 1e-3)
        finally:
            self._calls.remove(call)
        return call.replies or {}

    def _compare(self, call: Call, deadline: Deadline) -> None:
        """Report the calls of this rank's threads to all ranks, and complete those that all ranks make."""
        calls = self._calls[:MAX_CALLS]
        statements = self._statements(call, calls, deadline)
        going_on = may_go_on(statements)
        self._different = ""
        for number in set.intersection(*(set(statement["left"]) for statement in statements)):
            self._left.pop(number, None)  # no rank will call it
        for done in calls:
            if done.key in going_on:
                done.replies = notes_of(statements, done)
                if len(done.replies) == len(statements):
                    self._last = self.named(done)
        for what, _ in going_on:
            if what.startswith(
                DETAILS
            ):  # an error: a rank that leaves must not disturb the ranks that exchange the details
                self._over = True
        if going_on:
            return
        by_rank = {
            rank: " and ".join(self.named(Call(what, of)) for what, of, _ in statement["calls"])
            for rank, statement in enumerate(statements)
        }
        self._different = f"ranks make different calls: {describe_values(by_rank)}"
        if not any(statement["threads"] for statement in statements):
            self._over = True
            together = f"the last call that all ranks made together: {self._last}"
            raise MismatchError(f"PYC_CHECK: {self._different} ({together})")

    def _statements(self, call: Call, calls: Sequence[Call], deadline: Deadline) -> list[dict[str, Any]]:
        """Return the statements of all ranks. An error ends the checks, since the next comparison would fail too."""
        share = max(1, KEPT_ROUNDS // max(1, sum(bool(each.notes) for each in calls)))
        local = {
            "calls": [[each.what, each.of, dict(list(each.notes.items())[-share:])] for each in calls],
            "left": list(self._left)[-MAX_LEFT:],
            "threads": sum(thread.is_alive() for thread in tuple(self._threads)) > 1,  # others may be added
        }
        what = self.named(call)
        try:
            texts = self._engine.compare(encode(local), what=what, timeout=deadline.remaining())
        except BaseException:
            self._over = True
            raise
        return [local] * self._engine.size if texts is None else [json.loads(text) for text in texts]
