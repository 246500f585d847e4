"""What ranks call, as they tell each other under `PYC_CHECK=1`, and which of their calls are complete."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["DETAILS", "Call", "may_go_on", "notes_of"]

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
        What this rank sends to those that make the same call; of more than fit, the last are sent.
    replies
        What they sent, by rank, once the call is complete.
    """

    what: str
    of: int | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)
    replies: dict[int, dict[str, Any]] | None = None

    @property
    def key(self) -> tuple[str, int | None]:
        """What tells calls apart."""
        return self.what, self.of


def may_go_on(statements: Sequence[Mapping[str, Any]]) -> set[tuple[str, int | None]]:
    """Return the calls that are complete: every rank makes it, or has left the collective that it is of.

    The others wait for the next comparison. If no call is complete, and every rank has one thread, none will be.

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
    """Return the notes of the ranks that make a call."""
    return {
        rank: notes
        for rank, statement in enumerate(statements)
        for what, of, notes in statement["calls"]
        if (what, of) == call.key
    }
