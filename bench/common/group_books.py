"""The books of workers that average in groups: what each synchronisation did, and whether all of it was right.

They are checked after the fact, when all workers' pages are together: a group's members wrote down what they had
before it and after it, so the average is recomputed from what they had.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .model import TOLERANCE, initial_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

DRIFT = 1e-4  # relative, of the mean over workers: what many averages in float32 add up to
MET = 1e-3  # relative: how far apart workers' weights may be after many synchronisations


@dataclass(frozen=True)
class Entry:
    """One synchronisation of a worker; a value is None if the weights were no multiple of the pattern."""

    sequence: int
    group: tuple[int, ...]
    before: float | None
    after: float | None
    conflicts: int = 0
    waited: float = 0.0


@dataclass
class Page:
    """One worker's synchronisations in order, and what it has when it leaves."""

    entries: list[Entry] = field(default_factory=list)
    final: float | None = None


def audit(pages: Sequence[Page], *, every_group: bool, meets_after: int | None = None) -> list[str]:
    """Findings, none if all is right.

    `pages` by rank; `every_group`: each synchronisation was one average, that of the group that it names;
    `meets_after`: so many synchronisations of every worker, and all weights must be the same.
    """
    torn = [rank for rank, page in enumerate(pages) if _is_torn(page)]
    if torn:
        return [f"rank {rank}: its weights are no multiple of the pattern" for rank in torn]
    findings = _chains(pages)
    if every_group:
        findings += _averages(pages)
    least = min(len(page.entries) for page in pages)
    if meets_after is not None and least >= meets_after and spread(pages) > MET:
        findings.append(f"after {least} synchronisations of every worker, weights still differ by {spread(pages):.2g}")
    return findings


def spread(pages: Sequence[Page]) -> float:
    """How far apart workers' weights are at the end, relative to their mean."""
    finals = [page.final or 0.0 for page in pages]
    return (max(finals) - min(finals)) * len(finals) / sum(finals)


def conflicts(pages: Sequence[Page]) -> float:
    """Earlier groups that a group had to wait for, the mean over groups of more than one worker."""
    of_group = {(e.sequence, e.group): e.conflicts for page in pages for e in page.entries if len(e.group) > 1}
    return sum(of_group.values()) / max(1, len(of_group))


def performed(pages: Sequence[Page]) -> list[tuple[int, ...]]:
    """The groups that synchronisations named, each once, in order."""
    return [group for _, group in sorted({(entry.sequence, entry.group) for page in pages for entry in page.entries})]


def asking(pages: Sequence[Page], begins: Sequence[NDArray[np.float64]]) -> list[float]:
    """Seconds that the service took for groups that waited for nothing else: not for a member, nor a conflict.

    That is what the member that asked last waited. `begins`: when each worker asked, by rank and synchronisation.
    """
    last: dict[tuple[int, tuple[int, ...]], tuple[float, float]] = {}
    for page, asked in zip(pages, begins, strict=True):
        for entry, begin in zip(page.entries, asked, strict=True):
            if entry.conflicts == 0:
                key = entry.sequence, entry.group
                last[key] = max(last.get(key, (0.0, 0.0)), (float(begin), entry.waited))
    return [waited for _, waited in last.values()]


def _is_torn(page: Page) -> bool:
    return page.final is None or any(entry.before is None or entry.after is None for entry in page.entries)


def _chains(pages: Sequence[Page]) -> list[str]:
    """Nothing changes weights between synchronisations, an average is none of what it averages, and has the worker."""
    findings = []
    for rank, page in enumerate(pages):
        value = initial_value(rank)
        for number, entry in enumerate(page.entries):
            if not _equal(entry.before, value):
                findings.append(f"rank {rank}: synchronisation {number} began with {entry.before}, not with {value:g}")
            if rank not in entry.group:
                findings.append(f"rank {rank}: synchronisation {number} was of {entry.group}, without it")
            if (
                not initial_value(0) * (1 - DRIFT)
                <= (entry.after or 0.0)
                <= initial_value(len(pages) - 1) * (1 + DRIFT)
            ):
                findings.append(f"rank {rank}: synchronisation {number} made {entry.after}, which is no average")
            value = entry.after or 0.0
        if not _equal(page.final, value):
            findings.append(f"rank {rank}: left with {page.final}, not with {value:g}")
    return findings


def _averages(pages: Sequence[Page]) -> list[str]:
    """Each average is that of what its members had, and the mean over workers stays what it was.

    A worker that has left takes part in groups that it was in already: with what it had when it left, and then with
    what these groups made of it.
    """
    members: dict[tuple[int, tuple[int, ...]], dict[int, Entry]] = defaultdict(dict)
    for rank, page in enumerate(pages):
        for entry in page.entries:
            members[entry.sequence, entry.group][rank] = entry
    findings = []
    has = [page.final or 0.0 for page in pages]  # of those who have left
    for (sequence, group), entries in sorted(members.items()):  # groups with a common member are performed in order
        name = f"group {sequence} of {group}"
        before = {rank: entries[rank].before or 0.0 if rank in entries else has[rank] for rank in group}
        average = sum(before.values()) / len(before)
        wrong = {rank: entry.after for rank, entry in entries.items() if not _equal(entry.after, average)}
        if wrong:
            findings.append(f"{name}: the average of {before} is {average:g}; given: {wrong}")
        for rank in group:
            if rank in entries:
                continue
            if pages[rank].entries and pages[rank].entries[-1].sequence > sequence:
                findings.append(f"{name}: rank {rank} was never given it, but later ones")
            has[rank] = average
    mean = sum(initial_value(rank) for rank in range(len(pages))) / len(pages)
    drifted = sum(has) / len(has)
    if abs(drifted - mean) > DRIFT * mean:
        findings.append(f"the mean over workers was {mean:g} and is {drifted:g}")
    return findings


def _equal(value: float | None, expected: float) -> bool:
    return value is not None and abs(value - expected) <= 2 * TOLERANCE * abs(expected)
