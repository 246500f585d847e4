"""The partial allreduce under `PYC_CHECK=1`: ranks compare their calls and the results of their rounds."""

from __future__ import annotations

import contextlib
import hashlib
import threading
import warnings
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..agreement.calls import DETAILS, Call
from ..agreement.checking import KEPT_ROUNDS, Checks
from ..agreement.consistency import describe_difference, describe_ranks
from ..agreement.fingerprint import hash_of_bits
from ..support.deadline import Deadline
from ..support.errors import MismatchError, StallError
from ..support.validation import checked_timeout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from .. import _core
    from ..agreement.checking import NoChecks
    from .arguments import PartialAllreduceArguments


def checked(
    collective: _core.PartialAllreduce, checks: NoChecks, arguments: PartialAllreduceArguments
) -> _core.PartialAllreduce:
    """Return the engine's collective, wrapped in checks if `PYC_CHECK=1`."""
    if not isinstance(checks, Checks):
        return collective
    number = checks.register(arguments.name)
    kind = CheckedAllreduce if arguments.like.device is None else CheckedOnDevice
    return cast("_core.PartialAllreduce", kind(collective, checks, number, arguments))


class CheckedAllreduce:
    """Wraps the engine's collective, forwards calls and records their results."""

    def __init__(
        self,
        collective: _core.PartialAllreduce,
        checks: Checks,
        number: int,
        arguments: PartialAllreduceArguments,
    ) -> None:
        self._collective = collective
        self._checks = checks
        self._number = number
        self._in_use = threading.Lock()
        self._writable = arguments.writable
        self._sums_missed_rounds = arguments.missed == "sum"
        self._calls = 0
        self._given = 0  # rounds below this number were received, or superseded
        self._is_finite = True  # no result has had inf or NaN
        self._rounds: dict[int, dict[str, str | int]] = {}  # this rank's results of the newest rounds, ascending

    def __getattr__(self, name: str) -> Any:
        return getattr(self._collective, name)

    def contribute(self, x: Any, *, stream: Any = None) -> CheckedRound:
        self._checks.note_thread()
        with self._exclusively():
            self._calls += 1
            return CheckedRound(self._collective.contribute(x, stream=stream), self, self._calls)

    def contribute_and_wait(self, x: Any, *, timeout: float | None = None) -> _core.RoundInfo:
        limit = checked_timeout(timeout)
        return self.contribute(x).wait(timeout=limit)

    def allreduce(
        self, x: Any, out: Any | None = None, *, timeout: float | None = None, stream: Any = None
    ) -> tuple[Any, _core.RoundInfo]:
        into = None if out is None else self._writable(out)
        info = self._round_of(x, timeout, stream)
        if into is None:
            return self._collective.result, info
        np.copyto(into, self._collective.result)
        return into, info

    def _round_of(self, x: Any, timeout: float | None, stream: Any) -> _core.RoundInfo:
        """Contribute and wait. After a StallError, the caller cannot wait again, because it has no request."""
        limit = checked_timeout(timeout)
        handle = self.contribute(x, stream=stream)
        try:
            return handle.wait(timeout=limit)
        except StallError as error:
            error.advise("The data is contributed: do not contribute it again")
            raise

    def flush(self, *, timeout: float | None = None) -> _core.RoundInfo:
        with self._exclusively():
            return self._flush(timeout)

    @contextlib.contextmanager
    def _exclusively(self) -> Iterator[None]:
        """Refuse a second thread as the engine does, even while the first one is between two engine calls."""
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
        self._collective.start_flush()  # no round waits for this rank during the comparison
        self._checks.try_to_meet(Call("flush", self._number), deadline.remaining())
        info = self._collective.flush(timeout=deadline.remaining())
        self.note(info)
        self._compare("comparison after flush", deadline.remaining())
        return info

    def leave(self) -> None:
        self._checks.note_left(self._number)
        self._collective.leave()

    def abort(self) -> int:
        self._checks.note_left(self._number)
        return self._collective.abort()

    def note_call(self, call: int, info: _core.RoundInfo) -> None:
        """Record the result if `call` is the newest. The result of an older call may be of another round."""
        if call == self._calls:
            self.note(info)

    def note(self, info: _core.RoundInfo) -> None:
        """Record a result, unless its round is recorded already or the result spans several rounds."""
        if info.round < self._given:
            return
        self._given = info.round + 1
        result = self._result_on_host()
        self._check_finite(info, result)
        if self._sums_missed_rounds and info.missed:
            return
        contributors = describe_ranks(info.contributors) if info.contributors else "none"
        if len(contributors) > 200:
            contributors = f"{contributors[:200]}... (hash {_digest(contributors)})"
        self._rounds[info.round] = {
            "initiator": info.initiator,
            "contributors": contributors,
            "active": info.active,
            "result": f"bits {hash_of_bits(result)}",
        }
        if len(self._rounds) > KEPT_ROUNDS:
            del self._rounds[next(iter(self._rounds))]

    def _check_finite(self, info: _core.RoundInfo, result: NDArray[Any]) -> None:
        if not self._is_finite or np.isfinite(result).all():
            return
        self._is_finite = False
        warnings.warn(
            f"PYC_CHECK: {self._collective.name}: the result of round {info.round} contains inf or NaN, with data from "
            f"{describe_ranks(info.contributors)}. An iteration that converges without delays can diverge with them: "
            "see the condition in docs/howto/solver.md",
            RuntimeWarning,
            stacklevel=4,
        )

    def _result_on_host(self) -> NDArray[Any]:
        return self._collective.result

    def _compare(self, what: str, timeout: float | None) -> None:
        """Compare the recorded rounds with those of the other ranks that make the same call.

        Raises
        ------
        MismatchError
            A round differs. All ranks that make this call raise it, and the checks end.
        """
        deadline = Deadline(timeout)
        local = {str(number): _digest(repr(given)) for number, given in self._rounds.items()}
        replies = self._checks.try_to_meet(Call(what, self._number, local), deadline.remaining())
        rounds, self._rounds = self._rounds, {}
        digests: dict[int, set[str]] = {}
        for hashes in replies.values():
            for text, digest in hashes.items():
                digests.setdefault(int(text), set()).add(digest)
        differing = [number for number, values in digests.items() if len(values) > 1]
        if not differing:
            return
        number = min(differing)
        notes = {"given": rounds[number]} if number in rounds else {}
        call = Call(f"{DETAILS} {number}", self._number, notes)
        details = self._checks.try_to_meet(call, deadline.remaining())
        given = {rank: notes["given"] for rank, notes in details.items() if notes}
        given = given or {
            rank: {"hash": hashes[str(number)]} for rank, hashes in replies.items() if str(number) in hashes
        }
        which = f"round {number} of {self._collective.name!r} (collective {self._number})"
        raise MismatchError(f"PYC_CHECK: {which} is not the same on all ranks: {describe_difference(given)}")


class CheckedOnDevice(CheckedAllreduce):
    """`CheckedAllreduce` for arrays on a CUDA device."""

    _collective: Any  # a DeviceCollective

    def allreduce(
        self, x: Any, out: Any | None = None, *, timeout: float | None = None, stream: Any = None
    ) -> tuple[Any, _core.RoundInfo]:
        receiver = None if out is None else self._collective.receiver(out, stream)
        info = self._round_of(x, timeout, stream)
        return self._collective.given(out, receiver), info

    def _result_on_host(self) -> NDArray[Any]:
        values: NDArray[Any] = self._collective.fetched()
        return values


class CheckedRound:
    """Wraps the engine's request and records the round with which it completes."""

    def __init__(self, handle: _core.Round, collective: CheckedAllreduce, call: int) -> None:
        self._handle = handle
        self._collective = collective
        self._call = call

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._handle)  # isinstance must hold, but no class can derive from the engine's

    @property
    def default_timeout(self) -> float | None:
        return self._handle.default_timeout

    @property
    def late(self) -> bool:
        return self._handle.late

    def test(self) -> bool:
        done = self._handle.test()
        if done:
            self._collective.note_call(self._call, self._handle.wait(timeout=0.0))
        return done

    @property
    def done(self) -> bool:
        return self.test()

    def wait(self, *, timeout: float | None = None) -> _core.RoundInfo:
        info = self._handle.wait(timeout=timeout)
        self._collective.note_call(self._call, info)
        return info

    def __repr__(self) -> str:
        return repr(self._handle)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
