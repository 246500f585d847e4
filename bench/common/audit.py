"""Check results afterwards, from the gathered histories of all ranks."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .patterns import TOLERANCE, initial_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

# --- Rounds of a partial allreduce -----------------------------------------------------------------------------------

Total = float | int | None


@dataclass(frozen=True)
class Call:
    """One returned call, or the flush, which contributes no value."""

    value: int
    round: int
    initiator: int
    contributors: tuple[int, ...]
    active: int
    included: bool
    total: Total  # None: the result was not a multiple of the pattern


@dataclass
class CallHistory:
    """One rank's calls in order; the flush is the last."""

    calls: list[Call] = field(default_factory=list)
    flush: Call | None = None

    def with_flush(self) -> list[Call]:
        return self.calls + ([self.flush] if self.flush else [])


def audit_calls(histories: Sequence[CallHistory], *, late: str, quorum: int = 1) -> list[str]:
    """Return findings; none if all results are right.

    A rank's data is pending from its call until the next round that lists the rank as a contributor. The histories
    therefore determine the sum of every round.

    `histories` by rank; `late` as given to the collective; `quorum`: the least number of contributors of a round.
    """
    findings = _agreement(histories)
    if findings:
        return findings  # ranks disagree, so there is no round to compare with
    rounds = {call.round: call for history in histories for call in history.with_flush()}
    flushes = {history.flush.round for history in histories if history.flush}
    taken: dict[int, int] = dict.fromkeys(rounds, 0)
    for rank, history in enumerate(histories):
        findings += _take(rank, history, rounds, taken, late)
    for number, call in sorted(rounds.items()):
        if number in flushes and not call.contributors:
            continue  # nothing was pending anywhere
        if call.total is None:
            findings.append(f"round {number}: the result is not a multiple of the contributed pattern")
        elif call.total != taken[number]:
            findings.append(
                f"round {number}: the result adds up to {call.total}, the data of its contributors "
                f"{list(call.contributors)} to {taken[number]}"
            )
        if number in flushes:
            continue
        if call.initiator not in range(len(histories)):
            findings.append(f"round {number}: initiator {call.initiator} is not a rank")
        if not 1 <= call.active <= len(call.contributors):
            findings.append(f"round {number}: {call.active} active of {len(call.contributors)} contributors")
        if len(call.contributors) < quorum:
            findings.append(f"round {number}: only {len(call.contributors)} contributors")
    given = sum(call.value for history in histories for call in history.calls)
    delivered = sum(call.total or 0 for call in rounds.values() if call.contributors)
    if late == "accumulate" and not findings and given != delivered:
        findings.append(f"{given} was contributed and {delivered} delivered")
    return findings


def _agreement(histories: Sequence[CallHistory]) -> list[str]:
    """Check that all ranks that received a round received the same one."""
    findings: list[str] = []
    first: dict[int, tuple[int, tuple[object, ...]]] = {}
    for rank, history in enumerate(histories):
        for call in history.with_flush():
            seen = (call.initiator, call.contributors, call.active, call.total)
            other, expected = first.setdefault(call.round, (rank, seen))
            if seen != expected:
                findings.append(
                    f"round {call.round}: rank {rank} was given {seen}, rank {other} {expected} "
                    "(initiator, contributors, active, total)"
                )
    return findings


def _take(rank: int, history: CallHistory, rounds: dict[int, Call], taken: dict[int, int], late: str) -> list[str]:
    """Credit the rank's data to the rounds that took it."""
    findings: list[str] = []
    pending: int | None = None  # None if nothing is pending, which differs from a sum of zero
    seen = -1
    for call in history.with_flush():
        # The data that was pending at this call went into the first round since then that names this rank. The round
        # that includes the call itself does not count here. It takes the call's data together with the pending data.
        taken_at_once = call.included and call is not history.flush
        past = range(seen + 1, call.round if taken_at_once else call.round + 1)
        for number in past:
            if number in rounds and rank in rounds[number].contributors:
                if pending is None:
                    findings.append(f"round {number}: rank {rank} is named but had nothing to contribute")
                else:
                    taken[number] += pending
                pending = None
        seen = max(seen, call.round)
        if call is history.flush:
            break
        if pending is not None and late == "accumulate":
            pending += call.value
        else:
            pending = call.value if call.included or late != "drop" else None
        if call.included:
            if rank not in call.contributors:
                findings.append(f"round {call.round}: included rank {rank}, which is not among the contributors")
            taken[call.round] += pending
            pending = None
    return findings


# --- Averages of workers ---------------------------------------------------------------------------------------------

DRIFT = 1e-4  # relative drift of the mean over workers, from rounding in many float32 averages
MET = 1e-3  # relative distance of workers' weights that is allowed after many synchronizations


@dataclass(frozen=True)
class Sync:
    """One synchronization of a worker; a value is None if the weights were no multiple of the pattern."""

    sequence: int
    group: tuple[int, ...]
    before: float | None
    after: float | None
    conflicts: int = 0
    waited: float = 0.0


@dataclass
class SyncHistory:
    """One worker's synchronizations in order, and its value when it leaves."""

    syncs: list[Sync] = field(default_factory=list)
    final: float | None = None


def audit_syncs(histories: Sequence[SyncHistory], *, every_group: bool, meets_after: int | None = None) -> list[str]:
    """Return findings; none if all results are right.

    The members of a group record their values before and after it. The average is recomputed from the values before.

    `histories` by rank. With `every_group`, each synchronization is one average over the group that it names.
    `meets_after`: the number of synchronizations of every worker after which all weights must be the same.
    """
    torn = [rank for rank, history in enumerate(histories) if _is_torn(history)]
    if torn:
        return [f"rank {rank}: its weights are no multiple of the pattern" for rank in torn]
    findings = _chains(histories)
    if every_group:
        findings += _averages(histories)
    least = min(len(history.syncs) for history in histories)
    if meets_after is not None and least >= meets_after and spread(histories) > MET:
        findings.append(
            f"after {least} synchronisations of every worker, weights still differ by {spread(histories):.2g}"
        )
    return findings


def spread(histories: Sequence[SyncHistory]) -> float:
    """Return the final distance of workers' weights, relative to their mean."""
    finals = [history.final or 0.0 for history in histories]
    return (max(finals) - min(finals)) * len(finals) / sum(finals)


def conflicts(histories: Sequence[SyncHistory]) -> float:
    """Return the mean number of earlier groups that a group had to wait for, over groups of several workers."""
    of_group = {
        (sync.sequence, sync.group): sync.conflicts
        for history in histories
        for sync in history.syncs
        if len(sync.group) > 1
    }
    return sum(of_group.values()) / max(1, len(of_group))


def performed(histories: Sequence[SyncHistory]) -> list[tuple[int, ...]]:
    """Return the groups that synchronizations named, without duplicates, in order."""
    return [
        group for _, group in sorted({(sync.sequence, sync.group) for history in histories for sync in history.syncs})
    ]


def asking(histories: Sequence[SyncHistory], begins: Sequence[NDArray[np.float64]]) -> list[float]:
    """Return the service's seconds for groups that waited for no member and no conflicting group.

    That is the waiting time of the member that asked last. `begins`: when each worker asked, by rank and
    synchronization.
    """
    last: dict[tuple[int, tuple[int, ...]], tuple[float, float]] = {}
    for history, asked in zip(histories, begins, strict=True):
        for sync, begin in zip(history.syncs, asked, strict=True):
            if sync.conflicts == 0:
                key = sync.sequence, sync.group
                last[key] = max(last.get(key, (0.0, 0.0)), (float(begin), sync.waited))
    return [waited for _, waited in last.values()]


def _is_torn(history: SyncHistory) -> bool:
    return history.final is None or any(sync.before is None or sync.after is None for sync in history.syncs)


def _chains(histories: Sequence[SyncHistory]) -> list[str]:
    """Check that weights stay the same between synchronizations, and that each average is possible."""
    findings = []
    for rank, history in enumerate(histories):
        value = initial_value(rank)
        for number, sync in enumerate(history.syncs):
            if not _equal(sync.before, value):
                findings.append(f"rank {rank}: synchronisation {number} began with {sync.before}, not with {value:g}")
            if rank not in sync.group:
                findings.append(f"rank {rank}: synchronisation {number} was of {sync.group}, without it")
            if (
                not initial_value(0) * (1 - DRIFT)
                <= (sync.after or 0.0)
                <= initial_value(len(histories) - 1) * (1 + DRIFT)
            ):
                findings.append(f"rank {rank}: synchronisation {number} made {sync.after}, which is no average")
            value = sync.after or 0.0
        if not _equal(history.final, value):
            findings.append(f"rank {rank}: left with {history.final}, not with {value:g}")
    return findings


def _averages(histories: Sequence[SyncHistory]) -> list[str]:
    """Check that each average is the mean of its members' values, and that the mean over workers does not change.

    A worker that has left still takes part in the groups that it was in. It enters the first with its value at leaving,
    and each following group with the result of the previous one.
    """
    members: dict[tuple[int, tuple[int, ...]], dict[int, Sync]] = defaultdict(dict)
    for rank, history in enumerate(histories):
        for sync in history.syncs:
            members[sync.sequence, sync.group][rank] = sync
    findings = []
    has = [history.final or 0.0 for history in histories]  # of workers that have left
    for (sequence, group), syncs in sorted(members.items()):  # groups with a common member are performed in order
        name = f"group {sequence} of {group}"
        before = {rank: syncs[rank].before or 0.0 if rank in syncs else has[rank] for rank in group}
        average = sum(before.values()) / len(before)
        wrong = {rank: sync.after for rank, sync in syncs.items() if not _equal(sync.after, average)}
        if wrong:
            findings.append(f"{name}: the average of {before} is {average:g}; given: {wrong}")
        for rank in group:
            if rank in syncs:
                continue
            if histories[rank].syncs and histories[rank].syncs[-1].sequence > sequence:
                findings.append(f"{name}: rank {rank} was never given it, but later ones")
            has[rank] = average
    mean = sum(initial_value(rank) for rank in range(len(histories))) / len(histories)
    drifted = sum(has) / len(has)
    if abs(drifted - mean) > DRIFT * mean:
        findings.append(f"the mean over workers was {mean:g} and is {drifted:g}")
    return findings


def _equal(value: float | None, expected: float) -> bool:
    return value is not None and abs(value - expected) <= 2 * TOLERANCE * abs(expected)
