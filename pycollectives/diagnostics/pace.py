"""The speed of a running program's ranks, from their flight records: step times, waits, and absent ranks."""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .flight import Document, Record


@dataclass(frozen=True)
class Pace:
    """The speed of one rank in one collective, over the rounds in its record, usually the newest 256."""

    group: str  # the communicator: the same text for all of its ranks
    collective: str
    rank: int
    pid: int
    step_s: float | None  # median seconds from one received round to the next; None for fewer than two
    # share of this time from a call to its result, 0 to 1; includes work between `contribute` and `wait`
    waiting: float | None
    # share of the rounds in all records that lack this rank's data; None if no record lists contributors
    absent: float | None
    behind: int  # rounds that another rank has received and this one has not
    since_s: float  # seconds since this rank's newest call
    waits_for: str  # the subject of the rank's current wait, such as "flush"; empty if it does not wait


def paces(documents: Iterable[Document]) -> list[Pace]:
    """Return the paces of all ranks, ordered by communicator, collective and rank."""
    groups: dict[str, list[Record]] = defaultdict(list)
    for document in documents:
        for record in document["communicators"]:
            groups[record["group"]].append({**record, "pid": document["pid"]})
    return [
        _pace(group, name, number, record, records)
        for group, records in sorted(groups.items())
        for number, name in sorted({(c["collective"], c["name"]) for r in records for c in r["collectives"]})
        for record in sorted(records, key=lambda one: int(one["rank"]))
        if number > 0 and any(c["collective"] == number and c["state"] != "ended" for c in record["collectives"])
    ]


def _pace(group: str, name: str, number: int, record: Record, records: list[Record]) -> Pace:
    received = [r for r in record["rounds"] if r["collective"] == number and "given_s" in r]
    steps = [after["given_s"] - before["given_s"] for before, after in pairwise(received)]
    waited = sum(r["given_s"] - r.get("called_s", r["given_s"]) for r in received[1:])
    present = {
        r["round"]: record["rank"] in r["contributors"]
        for each in records
        for r in each["rounds"]
        if r["collective"] == number and r.get("contributors")
    }
    newest = max((_received(each, number) for each in records), default=0)
    described = next(c for c in record["collectives"] if c["collective"] == number)
    return Pace(
        group=group,
        collective=name,
        rank=record["rank"],
        pid=record["pid"],
        step_s=statistics.median(steps) if steps else None,
        waiting=min(waited / sum(steps), 1.0) if sum(steps) > 0 else None,
        absent=1 - sum(present.values()) / len(present) if present else None,
        behind=newest - _received(record, number),
        since_s=record["since_call_s"],
        waits_for=described.get("wait", {}).get("for", ""),
    )


def _received(record: Record, number: int) -> int:
    """Return the number of rounds up to the newest round that a rank has received."""
    given = (r["round"] + 1 for r in record["rounds"] if r["collective"] == number and r["state"] == "given")
    return max(given, default=0)
