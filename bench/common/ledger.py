"""The books of one block of a partial allreduce: who gave what to which call, and what each round said it took.

Rounds are checked after the fact, when all ranks' pages are together. A rank's data is pending from the call that gave
it until a round that names the rank a contributor takes it, so pages alone say what every round must have reduced.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

Total = float | int | None


@dataclass(frozen=True)
class Entry:
    """One returned call, or the flush, which gives no value of its own."""

    value: int
    round: int
    initiator: int
    contributors: tuple[int, ...]
    active: int
    included: bool
    total: Total  # None: the result was not a multiple of the pattern


@dataclass
class Page:
    """One rank's calls in order; the flush closes it."""

    calls: list[Entry] = field(default_factory=list)
    flush: Entry | None = None

    def entries(self) -> list[Entry]:
        return self.calls + ([self.flush] if self.flush else [])


def audit(pages: Sequence[Page], *, late: str, quorum: int = 1) -> list[str]:
    """Findings, none if all is right.

    `pages` by rank; `late` as given to the collective; `quorum`: the least number of contributors of a round.
    """
    findings = _agreement(pages)
    if findings:
        return findings  # without agreement there is no round to compare with
    rounds = {entry.round: entry for page in pages for entry in page.entries()}
    flushes = {page.flush.round for page in pages if page.flush}
    taken: dict[int, int] = dict.fromkeys(rounds, 0)
    for rank, page in enumerate(pages):
        findings += _take(rank, page, rounds, taken, late)
    for number, entry in sorted(rounds.items()):
        if number in flushes and not entry.contributors:
            continue  # nothing was pending anywhere
        if entry.total is None:
            findings.append(f"round {number}: the result is not a multiple of the contributed pattern")
        elif entry.total != taken[number]:
            findings.append(
                f"round {number}: the result adds up to {entry.total}, the data of its contributors "
                f"{list(entry.contributors)} to {taken[number]}"
            )
        if number in flushes:
            continue
        if entry.initiator not in range(len(pages)):
            findings.append(f"round {number}: initiator {entry.initiator} is not a rank")
        if not 1 <= entry.active <= len(entry.contributors):
            findings.append(f"round {number}: {entry.active} active of {len(entry.contributors)} contributors")
        if len(entry.contributors) < quorum:
            findings.append(f"round {number}: only {len(entry.contributors)} contributors")
    given = sum(call.value for page in pages for call in page.calls)
    delivered = sum(entry.total or 0 for entry in rounds.values() if entry.contributors)
    if late == "accumulate" and not findings and given != delivered:
        findings.append(f"{given} was contributed and {delivered} delivered")
    return findings


def _agreement(pages: Sequence[Page]) -> list[str]:
    """Every rank that was given a round must have been given the same round."""
    findings: list[str] = []
    first: dict[int, tuple[int, tuple[object, ...]]] = {}
    for rank, page in enumerate(pages):
        for entry in page.entries():
            seen = (entry.initiator, entry.contributors, entry.active, entry.total)
            other, expected = first.setdefault(entry.round, (rank, seen))
            if seen != expected:
                findings.append(
                    f"round {entry.round}: rank {rank} was given {seen}, rank {other} {expected} "
                    "(initiator, contributors, active, total)"
                )
    return findings


def _take(rank: int, page: Page, rounds: dict[int, Entry], taken: dict[int, int], late: str) -> list[str]:
    """Books rank's data into the rounds that took it."""
    findings: list[str] = []
    pending: int | None = None  # None: nothing, which is not the same as a sum of zero
    seen = -1
    for entry in page.entries():
        # What was pending when this call was made went into a round since, if one names this rank. The round that
        # includes the call itself is not among them: it takes the call's data together with what is pending.
        taken_at_once = entry.included and entry is not page.flush
        past = range(seen + 1, entry.round if taken_at_once else entry.round + 1)
        for number in past:
            if number in rounds and rank in rounds[number].contributors:
                if pending is None:
                    findings.append(f"round {number}: rank {rank} is named but had nothing to contribute")
                else:
                    taken[number] += pending
                pending = None
        seen = max(seen, entry.round)
        if entry is page.flush:
            break
        if pending is not None and late == "accumulate":
            pending += entry.value
        else:
            pending = entry.value if entry.included or late != "drop" else None
        if entry.included:
            if rank not in entry.contributors:
                findings.append(f"round {entry.round}: included rank {rank}, which is not among the contributors")
            taken[entry.round] += pending
            pending = None
    return findings
