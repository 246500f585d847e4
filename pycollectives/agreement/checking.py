"""Checks across ranks, for debugging (`PYC_CHECK=1`): the same calls in the same order, the same bits in every round.

Ranks meet at every collective call of a communicator: each tells all others what its threads call and, of collectives
that are flushed or closed, hashes of the newest rounds that it was given. So ranks that call different things learn of
it instead of waiting for each other, and a round that is not the same everywhere is found at the next flush or close.

A rank may leave a collective before the others: who flushes does not wait for who is in `close`, or has abandoned it.
Threads of a rank may flush different collectives in any order: while a rank has several, ranks that make different
calls only meet again, until they make the same.

A meeting is a comparison among all ranks: `close` waits here, which it does not do otherwise, and no rank gets through
`flush` or `close` while another waits for a round. Where ranks cannot meet any more, since one has left the
communicator or has run into a time limit, a warning says so, and the program goes on without checks. An exchange that
was given up makes its engine unusable, so meetings have one of their own.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
import time
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..support.deadline import Deadline
from ..support.environment import checked_timeout
from ..support.errors import ClosedError, MismatchError, StallError
from .consistency import describe_difference, describe_ranks, describe_values, encode
from .fingerprint import hash_of_bits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from .. import _core
    from ..partial_allreduce.arguments import PartialAllreduceSpecification

__all__ = ["Checks", "NoChecks", "may_go_on"]

KEPT_ROUNDS = 64
"""Rounds of a collective, the newest, that are compared. Their hashes fit into one exchange of 4096 bytes."""

MAX_LEFT = 64
"""Collectives, abandoned here and open elsewhere, that are told in one exchange."""

MAX_CALLS = 16
"""Threads of a rank whose calls are told in one exchange; what they compare shares `KEPT_ROUNDS`."""

LONGEST_PAUSE = 0.01
"""Seconds between two meetings of ranks whose threads make different calls."""

CLOSE = "close"
DETAILS = "comparison of round"


@dataclass(eq=False)
class Call:
    """What a thread calls, and what it wants compared.

    Attributes
    ----------
    what
        The same text on all ranks that call it.
    of
        The number of the collective that is called, if it is one's.
    notes
        What this rank tells those that make the same call; of more than fit, the last are told.
    heard
        What they told, by rank, once the call is complete.
    """

    what: str
    of: int | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)
    heard: dict[int, dict[str, Any]] | None = None

    @property
    def key(self) -> tuple[str, int | None]:
        """What tells calls apart."""
        return self.what, self.of


class NoChecks:
    """What a communicator has while nothing is checked."""

    def meet(self, call: str, timeout: float | None) -> None:
        """Do nothing."""

    def finish(self, timeout: float | None) -> None:
        """Do nothing."""

    def leave(self) -> None:
        """Do nothing."""

    def watched(
        self, collective: _core.PartialAllreduce, specification: PartialAllreduceSpecification
    ) -> _core.PartialAllreduce:
        """Return it as it is."""
        return collective


class Checks(NoChecks):
    """One rank's part in the checks of a communicator."""

    def __init__(self, engine: _core.Engine, timeout: float | None) -> None:
        """The engine is for meetings alone; `timeout` is for calls that have none."""
        self.timeout = timeout
        self._engine = engine
        self._turn = threading.Lock()  # held while ranks meet, so that threads take turns
        self._names: list[str] = []  # of the collectives, in the order of creation
        self._abandoned: dict[int, None] = {}  # collectives that the other ranks have not all closed
        self._calls: list[Call] = []  # that this rank's threads are in
        self._threads: set[threading.Thread] = set()
        self._last = "this is the first"
        self._different = ""  # what threads called at the last meeting, if no call was complete
        self._over = False

    def meet(self, call: str, timeout: float | None) -> None:
        """Tell the others of a call that needs all ranks, and return when all make it.

        Raises
        ------
        MismatchError
            Other ranks make other calls; on all ranks. Ends the checks.
        """
        self.try_to_meet(Call(call), timeout)

    def finish(self, timeout: float | None) -> None:
        """Meet for the last time."""
        deadline = Deadline(timeout)
        self.try_to_meet(Call("close of the communicator"), deadline.remaining())
        if self._over:
            self._engine.abandon()
        else:
            self._engine.close(timeout=deadline.remaining())

    def leave(self) -> None:
        """Tell the others that this rank will not meet them again; without waiting."""
        self._over = True
        self._engine.abandon()

    def watched(
        self, collective: _core.PartialAllreduce, specification: PartialAllreduceSpecification
    ) -> _core.PartialAllreduce:
        """Return the collective with the checks around it."""
        number = len(self._names)
        self._names.append(specification.name)
        return cast("_core.PartialAllreduce", _WatchedAllreduce(collective, self, number, specification))

    def abandon(self, number: int) -> None:
        """Note that this rank makes no more calls of a collective."""
        self._abandoned[number] = None

    def note_thread(self) -> None:
        """Note that this thread uses the communicator."""
        self._threads.add(threading.current_thread())

    def named(self, call: Call) -> str:
        """Return a call in words."""
        return call.what if call.of is None else f"{call.what} of {self._names[call.of]!r} (collective {call.of})"

    def try_to_meet(self, call: Call, timeout: float | None) -> dict[int, dict[str, Any]]:
        """Meet; if ranks cannot meet any more, or not in time, warn that there are no more checks.

        Returns
        -------
        dict
            By rank, the notes of those that make this call; empty without checks.

        Raises
        ------
        MismatchError
            Other ranks make other calls; on all ranks. Ends the checks.
        """
        try:
            return self._meet(call, timeout)
        except (StallError, ClosedError) as error:
            why = str(error).removesuffix("; the communicator is unusable now")  # that of meetings
            why = f"{why}; {self._different}" if self._different else why
            warnings.warn(f"PYC_CHECK: no more checks on this communicator: {why}", RuntimeWarning, stacklevel=4)
            return {}

    def _meet(self, call: Call, timeout: float | None) -> dict[int, dict[str, Any]]:
        deadline = Deadline(timeout)
        pause = 0.0
        self.note_thread()
        self._calls.append(call)
        try:
            while not self._over and call.heard is None:
                with self._turn:  # whose turn it is speaks for all threads
                    if not self._over and call.heard is None:
                        self._exchange(call, deadline)
                if call.heard is None:
                    time.sleep(pause)
                    pause = min(LONGEST_PAUSE, pause + 1e-3)
        finally:
            self._calls.remove(call)
        return call.heard or {}

    def _exchange(self, call: Call, deadline: Deadline) -> None:
        """Tell all ranks what this one's threads call; complete what can be."""
        calls = self._calls[:MAX_CALLS]
        statements = self._statements(call, calls, deadline)
        going_on = may_go_on(statements)
        self._different = ""
        for done in calls:
            if done.key in going_on:
                done.heard = _told(statements, done)
                if len(done.heard) == len(statements):
                    self._last = self.named(done)
        for what, of in going_on:
            if what == CLOSE and of is not None:
                self._abandoned.pop(of, None)
            if what.startswith(DETAILS):  # an error; who leaves because of it must not disturb who hears of it
                self._over = True
        if going_on:
            return
        by_rank = {
            rank: " and ".join(self.named(Call(what, of)) for what, of, _ in said["calls"])
            for rank, said in enumerate(statements)
        }
        self._different = f"ranks make different calls: {describe_values(by_rank)}"
        if not any(said["threads"] for said in statements):
            self._over = True
            raise MismatchError(f"PYC_CHECK: {self._different} (the last that all ranks made together: {self._last})")

    def _statements(self, call: Call, calls: Sequence[Call], deadline: Deadline) -> list[dict[str, Any]]:
        """Return what all ranks say. The checks are over unless all can be told the next time, too."""
        share = max(1, KEPT_ROUNDS // max(1, sum(bool(each.notes) for each in calls)))
        closing = [each.of for each in calls if each.what == CLOSE and each.of is not None]
        mine = {
            "calls": [[each.what, each.of, dict(list(each.notes.items())[-share:])] for each in calls],
            "left": [*list(self._abandoned)[-MAX_LEFT:], *closing],
            "threads": sum(thread.is_alive() for thread in tuple(self._threads)) > 1,  # others may be added
        }
        what = self.named(call)
        try:
            heard = self._engine.compare(encode(mine), what=what, timeout=deadline.remaining())
        except BaseException:
            self._over = True
            raise
        return [mine] * self._engine.size if heard is None else [json.loads(said) for said in heard]


def may_go_on(statements: Sequence[Mapping[str, Any]]) -> set[tuple[str, int | None]]:
    """Return the calls that are complete: every rank makes it, or has left the collective that it is of.

    The others wait for another meeting. If no call is complete, and every rank has one thread, none will be.

    >>> flush = {"calls": [["flush", 0, {}]], "left": []}
    >>> close = {"calls": [["close", 0, {}]], "left": [0]}
    >>> may_go_on([flush, close, flush])
    {('flush', 0)}
    >>> may_go_on([flush, {"calls": [["flush", 1, {}]], "left": []}])
    set()
    """
    made = [{(what, of) for what, of, _ in said["calls"]} for said in statements]
    return {
        call
        for call in set().union(*made)
        if all(
            call in calls or (call[1] is not None and call[1] in said["left"])
            for calls, said in zip(made, statements, strict=True)
        )
    }


def _told(statements: Sequence[Mapping[str, Any]], call: Call) -> dict[int, dict[str, Any]]:
    """Return the notes of the ranks that make a call."""
    return {
        rank: notes
        for rank, said in enumerate(statements)
        for what, of, notes in said["calls"]
        if (what, of) == call.key
    }


class _WatchedAllreduce:
    """The engine's collective; what it is asked is passed on, and what it tells is noted."""

    def __init__(
        self,
        collective: _core.PartialAllreduce,
        checks: Checks,
        number: int,
        specification: PartialAllreduceSpecification,
    ) -> None:
        self._collective = collective
        self._checks = checks
        self._number = number
        self._in_use = threading.Lock()
        self._writable = specification.writable
        self._sums_missed_rounds = specification.missed == "sum"
        self._given = 0  # rounds before this one were given to this rank, or superseded
        self._rounds: dict[int, dict[str, str | int]] = {}  # what this rank was told of its newest rounds, ascending

    def __getattr__(self, name: str) -> Any:
        return getattr(self._collective, name)

    def contribute(self, x: Any) -> _WatchedRound:
        self._checks.note_thread()
        with self._exclusively():
            return _WatchedRound(self._collective.contribute(x), self)

    def contribute_and_wait(self, x: Any, timeout: float | None = None) -> _core.RoundInfo:
        limit = checked_timeout(timeout)
        return self.contribute(x).wait(limit)

    def allreduce(
        self, x: Any, out: Any | None = None, timeout: float | None = None
    ) -> tuple[NDArray[Any], _core.RoundInfo]:
        into = None if out is None else self._writable(out)
        info = self.contribute_and_wait(x, timeout)
        if into is None:
            return self._collective.result, info
        np.copyto(into, self._collective.result)
        return into, info

    def flush(self, timeout: float | None = None) -> _core.RoundInfo:
        with self._exclusively():
            return self._flush(timeout)

    @contextlib.contextmanager
    def _exclusively(self) -> Iterator[None]:
        """Say what the engine says to a second thread, also while the first is between two of its calls."""
        if not self._in_use.acquire(blocking=False):
            raise RuntimeError(
                f"{self._collective.name}: called while another thread is in a call of this collective; one thread at "
                "a time, or one collective per thread"
            )
        try:
            yield
        finally:
            self._in_use.release()

    def _flush(self, timeout: float | None) -> _core.RoundInfo:
        deadline = Deadline(timeout)
        self._collective.start_flush()  # no round waits for this rank while it meets the others
        self._checks.try_to_meet(Call("flush", self._number), deadline.remaining())
        info = self._collective.flush(deadline.remaining())
        self.note(info)
        self._compare("comparison after flush", deadline.remaining())
        return info

    def close(self) -> None:
        if self._collective.closed:
            return
        self._collective.close()
        self._compare(CLOSE, self._checks.timeout)

    def abandon(self) -> int:
        self._checks.abandon(self._number)
        return self._collective.abandon()

    def note(self, info: _core.RoundInfo) -> None:
        """Note what a look has given: unless an earlier one gave that round, or the result is of several rounds."""
        if info.round < self._given:
            return
        self._given = info.round + 1
        if self._sums_missed_rounds and info.missed:
            return
        contributors = describe_ranks(info.contributors) if info.contributors else "none"
        if len(contributors) > 200:
            contributors = f"{contributors[:200]}... (hash {_digest(contributors)})"
        self._rounds[info.round] = {
            "initiator": info.initiator,
            "contributors": contributors,
            "active": info.active,
            "result": f"bits {hash_of_bits(self._collective.result)}",
        }
        if len(self._rounds) > KEPT_ROUNDS:
            del self._rounds[next(iter(self._rounds))]

    def _compare(self, what: str, timeout: float | None) -> None:
        """Meet, and compare the rounds that ranks have in common with those that make the same call.

        Raises
        ------
        MismatchError
            One is not the same; on all ranks that make this call. Ends the checks.
        """
        deadline = Deadline(timeout)
        mine = {str(number): _digest(repr(told)) for number, told in self._rounds.items()}
        heard = self._checks.try_to_meet(Call(what, self._number, mine), deadline.remaining())
        rounds, self._rounds = self._rounds, {}
        digests: dict[int, set[str]] = {}
        for told in heard.values():
            for text, digest in told.items():
                digests.setdefault(int(text), set()).add(digest)
        differing = [number for number, values in digests.items() if len(values) > 1]
        if not differing:
            return
        number = min(differing)
        notes = {"told": rounds[number]} if number in rounds else {}
        call = Call(f"{DETAILS} {number}", self._number, notes)
        details = self._checks.try_to_meet(call, deadline.remaining())
        given = {rank: told["told"] for rank, told in details.items() if told}
        given = given or {rank: {"hash": told[str(number)]} for rank, told in heard.items() if str(number) in told}
        which = f"round {number} of {self._collective.name!r} (collective {self._number})"
        raise MismatchError(f"PYC_CHECK: {which} is not the same on all ranks: {describe_difference(given)}")


class _WatchedRound:
    """The engine's handle; a round that it gives is noted."""

    def __init__(self, handle: _core.Round, collective: _WatchedAllreduce) -> None:
        self._handle = handle
        self._collective = collective

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._handle)  # so that it is an instance of `pycollectives.Round`, which cannot be derived from

    @property
    def late(self) -> bool:
        return self._handle.late

    def test(self) -> bool:
        done = self._handle.test()
        if done:
            self._collective.note(self._handle.wait(0.0))
        return done

    def wait(self, timeout: float | None = None) -> _core.RoundInfo:
        info = self._handle.wait(timeout)
        self._collective.note(info)
        return info

    Test = test
    Wait = wait


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
