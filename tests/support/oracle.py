"""The promises of a partial allreduce (docs/semantics.md), checked on the records of all ranks after a run.

The oracle is multiplicity. Contribution j of rank r is a vector with a *mark* in element (r, j) and a neutral value
everywhere else, so the result of a round shows which contributions are in it, and how often, for every reduction,
element type and policy. `Recorder` makes such calls on one rank and records their results; `check` takes the records of
all ranks. Nothing here communicates: the caller gathers the records.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

import pycollectives as pc

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LIMIT = 60.0
"""Seconds that a call may take before it counts as hung."""


@dataclass(frozen=True)
class Case:
    """The arguments of the collective, and the most contributions of a rank."""

    size: int
    calls: int
    policy: pc.policies.Policy = pc.Solo()  # noqa: RUF009 - immutable
    op: str = "SUM"
    dtype: str = "int64"
    late: str = "accumulate"
    missed: str = "latest"
    max_staleness: int | None = None
    history: int = 8
    activation: str = "auto"
    algorithm: str = "auto"
    tiles: int = 1
    """The number of repetitions of the marks, which make the payload longer."""

    @property
    def count(self) -> int:
        return self.size * self.calls * self.tiles

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of `Communicator.partial_allreduce`."""
        names = (
            "count",
            "dtype",
            "op",
            "policy",
            "late",
            "missed",
            "max_staleness",
            "history",
            "activation",
            "algorithm",
        )
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Reply:
    """The return value of one call, and the result afterwards."""

    contribution: int | None  # None: a flush
    late: bool
    round: int
    initiator: int
    contributors: tuple[int, ...]
    active: int
    included: bool
    staleness: int
    missed: int
    overrun: bool
    result: np.ndarray


@dataclass
class Log:
    """One rank's record."""

    rank: int
    contributions: int = 0
    replies: list[Reply] = field(default_factory=list)
    closed: bool = False
    """The rank left without a flush after its last contribution: pending data is still delivered to the others."""


@dataclass
class RoundSeen:
    """One round, as described by all ranks that received it."""

    round: int
    contributors: tuple[int, ...]
    initiator: int
    active: int
    flush: bool = False
    result: np.ndarray | None = None  # of only this round
    contents: frozenset[tuple[int, int]] | None = None  # (rank, contribution)


# ---------------------------------------------------------------------------------------------------- marks


class Marks:
    """Contributions that can be distinguished in any result."""

    def __init__(self, case: Case) -> None:
        from pycollectives.support.buffers import checked_dtype

        self.case = case
        self.dtype = checked_dtype(case.dtype)
        integer = np.issubdtype(self.dtype, np.integer)
        # Under AVG an integer mark must survive a division that rounds toward zero.
        self.neutral, self.mark = {
            "SUM": (0, 1),
            "AVG": (0, 100 if integer else 1),
            "PROD": (1, 2),
            "MAX": (0, 1),
            "MIN": (1, 0),
            "LAND": (1, 0),
            "LOR": (0, 1),
            "LXOR": (0, 1),
            "BAND": (3, 1),
            "BOR": (0, 1),
            "BXOR": (0, 1),
        }[case.op]

    def contribution(self, rank: int, j: int) -> np.ndarray:
        case = self.case
        x = np.full((case.tiles, case.size, case.calls), self.neutral, self.dtype)
        x[:, rank, j] = self.mark
        return x.reshape(-1)

    def contents(self, result: np.ndarray, contributors: Sequence[int]) -> frozenset[tuple[int, int]]:
        """Return the contributions in a round's result, each of which must be in it exactly once."""
        case = self.case
        if not contributors:
            return frozenset()
        tiles = result.reshape(case.tiles, case.size, case.calls)
        assert (tiles.view(np.uint8) == tiles[:1].view(np.uint8)).all(), "parts of one result differ"
        values = tiles[0].real.astype(np.float64)
        mark, neutral = float(self.mark), float(self.neutral)
        if case.op == "AVG":
            mark /= len(contributors)
            if np.issubdtype(self.dtype, np.integer):
                mark = float(int(mark))
        tolerance = 0.01 * mark if case.op == "AVG" else 0.0
        present = abs(values - mark) <= tolerance
        strange = ~(present | (values == neutral))
        assert not strange.any(), f"(rank, contribution) with a wrong multiplicity: {_where(strange, values)}"
        return frozenset((int(r), int(j)) for r, j in np.argwhere(present))


def _where(strange: np.ndarray, values: np.ndarray) -> dict[tuple[int, int], float]:
    return {(int(r), int(j)): float(values[r, j]) for r, j in np.argwhere(strange)[:10]}


# ---------------------------------------------------------------------------------------------------- recording


class Recorder:
    """Makes and records one rank's calls on one collective.

    Every contribution is overwritten once it is handed over, and every result is kept with a copy, so that every test
    that records also checks stability.
    """

    def __init__(self, rank: int, ar: pc.PartialAllreduce, case: Case, *, limit: float = LIMIT) -> None:
        self.ar = ar
        self.log = Log(rank)
        self.marks = Marks(case)
        self.limit = limit
        self._open: list[tuple[int, pc.Request]] = []
        self._kept: list[tuple[np.ndarray, np.ndarray]] = []

    def call(self) -> Reply:
        """Contribute and wait."""
        self.contribute()
        self.wait()
        return self.log.replies[-1]

    def contribute(self) -> pc.Request:
        j = self.log.contributions
        self.log.contributions += 1
        x = self.marks.contribution(self.log.rank, j)
        handle = self.ar.contribute(x)
        x.view(np.uint8)[:] = 0x5A
        if handle.late:  # it receives the missed results at once
            self._write_down(j, handle)
        else:
            self._open.append((j, handle))
        return handle

    def wait(self) -> None:
        """Wait for all open calls: the newest first, so that it also receives the rounds of the older ones."""
        while self._open:
            self._write_down(*self._open.pop())

    def flush(self) -> Reply:
        self.wait()
        info = self.ar.flush(timeout=self.limit)
        self._tell(None, False, info)
        return self.log.replies[-1]

    def close(self) -> None:
        """Leave permanently, without a flush."""
        self.wait()
        self.ar.leave()
        self.log.closed = True

    def finished(self) -> Log:
        """Return the record; fail if a result changed after its delivery."""
        assert not self._open, "contributions without a wait"
        for result, copy in self._kept:
            assert result.tobytes() == copy.tobytes(), "a result changed after its delivery (torn read)"
        return self.log

    def _write_down(self, j: int, handle: pc.Request) -> None:
        self._tell(j, handle.late, handle.wait(timeout=self.limit))

    def _tell(self, j: int | None, late: bool, info: pc.RoundInfo) -> None:
        result = self.ar.result
        copy = result.copy()
        self._kept.append((result, copy))
        fields = ("round", "initiator", "contributors", "active", "included", "staleness", "missed", "overrun")
        self.log.replies.append(Reply(j, late, *(getattr(info, name) for name in fields), copy))


# ---------------------------------------------------------------------------------------------------- checking


def check(case: Case, logs: Sequence[Log], *, flushed: bool = True) -> dict[int, RoundSeen]:
    """Check every promise that is visible in the records; return the rounds.

    `flushed`: the run ended with a flush of every rank, or with ranks that had closed, so that no data is pending.
    """
    assert [log.rank for log in logs] == list(range(case.size))
    for log in logs:
        _check_order(case, log)
    rounds = _check_agreement(case, logs)
    _check_exactness(case, rounds)
    delivered = _check_deliveries(case, logs, rounds, flushed=flushed)
    _check_own_account(logs, rounds, delivered)
    if case.missed == "sum":
        _check_sums(case, logs, rounds, flushed=flushed)
    _check_policy(case, logs, rounds)
    _check_bounded_staleness(case, logs, rounds, delivered)
    return rounds


@dataclass(frozen=True)
class Given:
    """The rounds that one call received, `first` to `last`; it returned `reply.round`."""

    reply: Reply
    first: int
    last: int

    @property
    def alone(self) -> bool:
        """Whether the result belongs to only one round, under "sum" as well."""
        return self.first == self.last


def _given(log: Log) -> Iterable[Given]:
    """Yield the calls that received rounds that no earlier call had, with these rounds."""
    first = 0
    for reply in log.replies:
        if reply.round >= first:
            yield Given(reply, first, first + reply.missed)
            first += reply.missed + 1


def _check_order(case: Case, log: Log) -> None:
    """No round is returned twice or skipped without a count, and `overrun` reports when there were too many."""
    first = 0
    for reply in log.replies:
        if reply.round < first:  # completed together with an earlier call, or delivered by a later one
            assert reply.contribution is not None, f"a flush returned an old round: {log.rank} {reply}"
            assert not reply.late, f"a late call returned an old round: {log.rank} {reply}"
            assert reply.missed == 0, f"rounds counted as missed twice: {log.rank} {reply}"
            continue
        first += reply.missed + 1
        # A running total of rounds beyond the history may go past the round that a call waited for.
        folded = case.missed == "sum" and reply.round < first
        assert reply.round == first - 1 or folded, f"missed rounds do not add up to {first}: {log.rank} {reply}"
        assert reply.overrun == (reply.missed > case.history), f"overrun is wrong: {log.rank} {reply}"


def _check_agreement(case: Case, logs: Sequence[Log]) -> dict[int, RoundSeen]:
    """Promise 1: contributors, initiator, fresh contributors and the result's bits are the same on every rank."""
    rounds: dict[int, RoundSeen] = {}
    for log in logs:
        given = {id(given.reply): given for given in _given(log)}
        for reply in log.replies:
            seen = rounds.setdefault(
                reply.round, RoundSeen(reply.round, reply.contributors, reply.initiator, reply.active)
            )
            agreed = (seen.contributors, seen.initiator, seen.active)
            assert agreed == (reply.contributors, reply.initiator, reply.active), _difference(log, reply, seen)
            seen.flush |= reply.contribution is None
            new = given.get(id(reply))
            if new is None or (case.missed == "sum" and not new.alone) or not reply.contributors:
                continue  # there is no result of only this round
            if seen.result is None:
                seen.result = reply.result
            assert seen.result.tobytes() == reply.result.tobytes(), f"results differ: {_difference(log, reply, seen)}"
    return rounds


def _difference(log: Log, reply: Reply, seen: RoundSeen) -> str:
    return f"round {reply.round}: rank {log.rank} got {reply}, another rank {seen}"


def _check_exactness(case: Case, rounds: dict[int, RoundSeen]) -> None:
    """Promise 2: a result is the reduction of exactly the contributions of the ranks named, each once."""
    marks = Marks(case)
    for seen in rounds.values():
        named = seen.contributors
        assert list(named) == sorted(set(named)), f"contributors are not in order: {seen}"
        assert set(named) <= set(range(case.size)), f"contributors that are no ranks: {seen}"
        assert 0 <= seen.initiator < case.size, f"initiator that is no rank: {seen}"
        assert seen.active <= len(named), f"more active ranks than contributors: {seen}"
        if not named:
            seen.contents = frozenset()
            assert seen.flush, f"a round without a contributor: {seen}"
        elif seen.result is not None:
            seen.contents = marks.contents(seen.result, named)
            assert {r for r, _ in seen.contents} == set(named), f"contributors are not those in the result: {seen}"


def _check_deliveries(
    case: Case, logs: Sequence[Log], rounds: dict[int, RoundSeen], *, flushed: bool
) -> dict[tuple[int, int], int]:
    """Promise 3: each contribution is in one round; return the round by (rank, contribution)."""
    delivered: dict[tuple[int, int], int] = {}
    for seen in sorted(rounds.values(), key=lambda seen: seen.round):
        for which in seen.contents or ():
            assert which not in delivered, f"{which} is in rounds {delivered[which]} and {seen.round}"
            delivered[which] = seen.round
    contributed = {(log.rank, j) for log in logs for j in range(log.contributions)}
    assert set(delivered) <= contributed, f"delivered, never contributed: {set(delivered) - contributed}"
    # After the last rank has closed, no rank is left to receive it.
    complete = flushed and not all(log.closed for log in logs)
    complete = complete and all(seen.contents is not None for seen in rounds.values())
    complete = complete and len(rounds) == 1 + max(rounds, default=-1)
    if complete and case.late == "accumulate":
        assert set(delivered) == contributed, f"never delivered: {sorted(contributed - set(delivered))}"
    if complete and case.late == "replace":
        for log in logs:
            newest = (log.rank, log.contributions - 1)
            assert log.contributions == 0 or newest in delivered, f"the newest was not delivered: {newest}"
    if case.late == "replace":
        ranks = [Counter(r for r, _ in seen.contents or ()) for seen in rounds.values()]
        assert all(n == 1 for counter in ranks for n in counter.values()), "a replaced contribution was delivered"
    held = case.max_staleness is not None or isinstance(case.policy, pc.Full)  # data that a round waits for is not late
    if case.late == "drop" and not held:
        late = {
            (log.rank, reply.contribution)
            for log in logs
            for reply in log.replies
            if reply.late or not (reply.included or reply.missed)
        }
        assert not late & set(delivered), f"late, yet delivered under late='drop': {late & set(delivered)}"
    return delivered


def _check_own_account(
    logs: Sequence[Log], rounds: dict[int, RoundSeen], delivered: dict[tuple[int, int], int]
) -> None:
    """`included`, `staleness` and `active` agree with the contents about this rank's data; next-round delivery."""
    for log in logs:
        # Rounds that had completed when a contribution was handed over. Unknown if a call returned a newer round than
        # it waited for, or a late call a newer round than existed then, because no rank had looked in time.
        handed = {
            reply.contribution: reply.round + 1 if reply.late else reply.round
            for reply in log.replies
            if reply.contribution is not None and (not reply.overrun if reply.late else reply.missed == 0)
        }
        for (rank, j), at in delivered.items():
            if rank == log.rank and j in handed:  # promise 5: data that was handed over is in the next round
                assert at - handed[j] in (0, 1), f"contribution {j} of rank {rank}, of {handed[j]}, came in round {at}"
        for reply in log.replies:
            contents = rounds[reply.round].contents
            if contents is None:
                continue
            own = sorted(j for r, j in contents if r == log.rank)
            if reply.contribution is not None:
                included = bool(own) and own[-1] >= reply.contribution
                assert reply.included == included, f"included is wrong: {log.rank} {reply} {contents}"
            if own and own[0] not in handed:
                continue
            expected = reply.round - handed[own[0]] if own else 0
            assert reply.staleness == expected, f"staleness: expected {expected}: {log.rank} {reply} {contents}"
    for seen in rounds.values():
        if seen.contents is None:
            continue
        fresh = {
            log.rank
            for log in logs
            for reply in log.replies
            if reply.round == seen.round and not reply.late and (log.rank, reply.contribution) in seen.contents
        }
        unknown = {
            log.rank
            for log in logs
            for reply in log.replies
            if reply.contribution is not None and not reply.late and reply.missed > 0 and log.rank in seen.contributors
        }
        assert len(fresh) <= seen.active <= len(fresh | unknown), f"active: expected {sorted(fresh)}, {seen}"
        if not seen.flush:
            assert seen.active >= 1, f"a round without a real arrival: {seen}"


def _check_sums(case: Case, logs: Sequence[Log], rounds: dict[int, RoundSeen], *, flushed: bool) -> None:
    """Under "sum" every rank receives every round exactly once: its running total is the sum of all contributions."""
    contributed = np.zeros((case.size, case.calls))
    for log in logs:
        contributed[log.rank, : log.contributions] = 1
    exact = np.issubdtype(Marks(case).dtype, np.integer)
    for log in logs:
        total = np.zeros((case.size, case.calls))
        for given in _given(log):
            reply = given.reply
            result = reply.result.reshape(case.tiles, case.size, case.calls)[0].astype(np.float64)
            total += result
            parts = [rounds.get(r) for r in range(given.first, given.last + 1)]
            if any(part is None or part.contents is None for part in parts):
                continue
            known = [part.result for part in parts if part.contributors]
            expected = sum(part.reshape(case.tiles, case.size, case.calls)[0].astype(np.float64) for part in known)
            assert np.allclose(result, expected, rtol=0.02, atol=0), f"not the sum of its rounds: {log.rank} {reply}"
        if flushed and not log.closed and exact and case.op == "SUM" and case.late == "accumulate":
            wrong = total != contributed
            assert not wrong.any(), f"rank {log.rank}'s running total is wrong in {_where(wrong, total)}"


def _present(log: Log, rounds: dict[int, RoundSeen]) -> set[int]:
    """Return rounds that completed while this rank had certainly not left: up to its last call before each flush."""
    present: set[int] = set()
    begin = end = 0
    for reply in log.replies:
        if reply.contribution is None:
            present |= set(range(begin, end))
            begin = end = reply.round + 1
        else:
            end = max(end, reply.round + 1)
    return present | set(range(begin, end))


def _check_policy(case: Case, logs: Sequence[Log], rounds: dict[int, RoundSeen]) -> None:
    """Promise 4: the ranks that have arrived when a round starts, while no rank has left."""
    everybody = set.intersection(*(_present(log, rounds) for log in logs))
    for number in everybody & set(rounds):
        seen = rounds[number]
        if seen.flush:
            continue
        assert seen.initiator in seen.contributors, f"the initiator's data is not in: {seen}"
        if isinstance(case.policy, pc.Quorum):
            assert seen.active >= case.policy.k, f"fewer arrivals than the quorum of {case.policy.k}: {seen}"
        elif isinstance(case.policy, pc.policies.AllOf):
            assert seen.active >= case.policy.m, f"fewer arrivals than the {case.policy.m} designated: {seen}"
        elif isinstance(case.policy, pc.Full):
            assert seen.contributors == tuple(range(case.size)), f"a synchronous round without all ranks: {seen}"


def _check_bounded_staleness(
    case: Case, logs: Sequence[Log], rounds: dict[int, RoundSeen], delivered: dict[tuple[int, int], int]
) -> None:
    """Promise 5: with `max_staleness=t` no rank lacks data in more than t rounds in a row."""
    if case.max_staleness is None:
        return
    for log in logs:
        lacking = 0
        present = _present(log, rounds)
        for number in range(1 + max(rounds, default=-1)):
            absent = number in present and number in rounds and log.rank not in rounds[number].contributors
            lacking = lacking + 1 if absent else 0
            assert lacking <= case.max_staleness, f"rank {log.rank} is absent from {lacking} rounds up to {number}"


def designated_are_uniform(initiators: Iterable[int], size: int) -> bool:
    """Whether the initiators may be uniform over the ranks: a chi-square test at about 5 standard deviations."""
    counts = Counter(initiators)
    expected = sum(counts.values()) / size
    statistic = sum((counts[rank] - expected) ** 2 / expected for rank in range(size))
    freedom = size - 1
    return statistic <= freedom + 5 * (2 * freedom) ** 0.5 + 5
