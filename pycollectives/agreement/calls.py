"""The calls that ranks report to each other under `PYC_CHECK=1`, and which of them are complete."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DETAILS = "comparison of round"


@dataclass(eq=False)
class Call:
    """A collective call of a thread, with the data that ranks compare."""

    what: str  # the name of the call, the same on all ranks that make it
    of: int | None = None  # the number of the collective, if the call belongs to one
    # data for the ranks that make the same call; if it does not all fit, the last entries are sent
    notes: Mapping[str, Any] = field(default_factory=dict)
    replies: dict[int, dict[str, Any]] | None = None  # the notes of the other ranks, by rank, once the call is complete

    @property
    def key(self) -> tuple[str, int | None]:
        """The key by which ranks recognize the same call."""
        return self.what, self.of


def may_go_on(statements: Sequence[Mapping[str, Any]]) -> set[tuple[str, int | None]]:
    """Return the complete calls: those made by every rank that has not left the collective.

    The other calls wait for the next comparison. If no call is complete and every rank has one thread, no call ever
    will be.

    >>> flush = {"calls": [["flush", 0, {}]], "left": []}
    >>> left = {"calls": [["mean", None, {}]], "left": [0]}
    >>> may_go_on([flush, left, flush])
    {('flush', 0)}
    >>> may_go_on([flush, {"calls": [["flush", 1, {}]], "left": []}])
    set()
    """
    made = [{(what, of) for what, of, _ in statement["calls"]} for statement in statements]
    return {
        call
        for call in set().union(*made)
        if all(
            call in calls or (call[1] is not None and call[1] in statement["left"])
            for calls, statement in zip(made, statements, strict=True)
        )
    }


def notes_of(statements: Sequence[Mapping[str, Any]], call: Call) -> dict[int, dict[str, Any]]:
    """Return the notes for a call, by the rank that makes the call."""
    return {
        rank: notes
        for rank, statement in enumerate(statements)
        for what, of, notes in statement["calls"]
        if (what, of) == call.key
    }
