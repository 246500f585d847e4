"""How a rank of Hop waits for its neighbors.

Sections are those of Luo et al., "Hop: Heterogeneity-aware Decentralized Training", ASPLOS 2019. The in-neighbors of a
rank include the rank itself there, whose own update is always at hand.

| mode | a rank ends iteration k when it has |
|---|---|
| `Standard()` | the update of iteration k of each in-neighbor (section 4.1) |
| `NotifyAck()` | the same, and sends its next update when all out-neighbors have acknowledged the last (section 3.3) |
| `BackupWorkers(n)` | the updates of iteration k of all in-neighbors but n (section 4.3) |
| `BoundedStaleness(s)` | of each in-neighbor an update of iteration k - s or later (section 4.4) |
| `Hybrid(n, s)` | ... of all in-neighbors but n |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..support.validation import integer_field

MOST = 1 << 62
"""Of iterations and updates: sums of two of them are integers of 64 bits."""

__all__ = ["BackupWorkers", "BoundedStaleness", "Hybrid", "Mode", "NotifyAck", "Skip", "Standard", "parse"]


@dataclass(frozen=True)
class Mode:
    """Base of the modes; not a mode itself."""

    @property
    def backup(self) -> int:
        """In-neighbors whose update need not have come."""
        return 0

    @property
    def staleness(self) -> int | None:
        """How many iterations old an update may be; None: updates are of the same iteration."""
        return None

    @property
    def acknowledges(self) -> bool:
        """Whether updates are acknowledged."""
        return False

    @property
    def bound_by_updates(self) -> float:
        """How far a rank can be ahead of an in-neighbor, by what it waits for: Table 1, first column."""
        if self.backup:
            return float("inf")
        return (self.staleness or 0) + 1

    def engine_arguments(self) -> dict[str, Any]:
        """Return the arguments that describe this mode to the engine and the simulator."""
        return {"backup": self.backup, "staleness": self.staleness, "acks": self.acknowledges}


@dataclass(frozen=True)
class Standard(Mode):
    """Wait for the update of the same iteration of every in-neighbor: Hop, section 4.1.

    >>> Standard()
    Standard()
    """


@dataclass(frozen=True)
class NotifyAck(Mode):
    """Send an update only after all out-neighbors have reduced the one before: the older scheme of section 3.3.

    For comparison: it keeps neighbors within 2 iterations of each other, and so leaves no room for the other modes.

    >>> NotifyAck()
    NotifyAck()
    """

    @property
    def acknowledges(self) -> bool:
        """See `Mode`."""
        return True


@dataclass(frozen=True)
class BackupWorkers(Mode):
    """Wait for the updates of the same iteration of all in-neighbors but `n`: Hop, section 4.3.

    Updates that are there in time are all averaged; those that come later are discarded. For ranks that are slow now
    and then.

    Parameters
    ----------
    n
        At least 1, at most the number of in-neighbors of each rank.

    >>> BackupWorkers(1)
    BackupWorkers(n=1)
    """

    n: int

    def __post_init__(self) -> None:
        """Check what does not depend on the graph."""
        integer_field(self, "n", at_least=1, at_most=MOST)

    @property
    def backup(self) -> int:
        """See `Mode`."""
        return self.n


@dataclass(frozen=True)
class BoundedStaleness(Mode):
    """Wait until the newest update of every in-neighbor is at most `s` iterations old: Hop, section 4.4.

    The newest update of each in-neighbor is averaged; it may be of a later iteration than the own. One of iteration i,
    reduced in iteration k, has the weight i - (k - s) + 1 (equation 2). The own one is of iteration k. What was reduced
    once is not reduced again.

    Parameters
    ----------
    s
        At least 0.

    >>> BoundedStaleness(5)
    BoundedStaleness(s=5)
    """

    s: int

    def __post_init__(self) -> None:
        """Check it."""
        integer_field(self, "s", at_least=0, at_most=MOST)

    @property
    def staleness(self) -> int:
        """See `Mode`."""
        return self.s


@dataclass(frozen=True)
class Hybrid(Mode):
    """`BoundedStaleness(s)` in which `n` in-neighbors may be older still, as with `BackupWorkers(n)`: Hop, Table 1.

    Parameters
    ----------
    n, s
        As of these.

    >>> Hybrid(1, 5)
    Hybrid(n=1, s=5)
    """

    n: int
    s: int

    def __post_init__(self) -> None:
        """Check what does not depend on the graph."""
        integer_field(self, "n", at_least=1, at_most=MOST)
        integer_field(self, "s", at_least=0, at_most=MOST)

    @property
    def backup(self) -> int:
        """See `Mode`."""
        return self.n

    @property
    def staleness(self) -> int:
        """See `Mode`."""
        return self.s


@dataclass(frozen=True)
class Skip:
    """A rank that is far behind skips iterations: Hop, section 5.

    At the end of an iteration, a rank that is more than `trigger` iterations behind all its out-neighbors goes on to a
    later one: not beyond any of them, and by at most `max_jump`. Before that it averages its parameters with updates of
    the iteration before that one. For ranks that are always slow.

    Parameters
    ----------
    max_jump
        At least 1: by how many iterations a rank goes on at most; 1 is no jump.
    trigger
        At least 1.

    >>> Skip(10)
    Skip(max_jump=10, trigger=1)
    """

    max_jump: int
    trigger: int = 1

    def __post_init__(self) -> None:
        """Check both."""
        integer_field(self, "max_jump", at_least=1, at_most=MOST)
        integer_field(self, "trigger", at_least=1, at_most=MOST)


def parse(text: str) -> tuple[Mode, Skip | None]:
    """Return a mode, and when it skips, of a text as on command lines.

    "standard", "notify-ack", "backup:N", "staleness:S", "hybrid:N:S"; with "+skip:J" behind it, iterations are skipped,
    J at most. "skip:J" alone is "backup:1+skip:J", as in section 7.3.5.

    Raises
    ------
    ValueError
        Another text.

    >>> parse("hybrid:1:5")
    (Hybrid(n=1, s=5), None)
    >>> parse("skip:10")
    (BackupWorkers(n=1), Skip(max_jump=10, trigger=1))
    """
    first, *more = text.split("+")
    if first.startswith("skip:") and not more:
        first, more = "backup:1", [first]
    name, *numbers = first.split(":")
    kinds: dict[tuple[str, int], type[Mode]] = {
        ("standard", 0): Standard,
        ("notify-ack", 0): NotifyAck,
        ("backup", 1): BackupWorkers,
        ("staleness", 1): BoundedStaleness,
        ("hybrid", 2): Hybrid,
    }
    kind = kinds.get((name, len(numbers)))
    skips = [part.removeprefix("skip:") for part in more]
    if kind is None or len(skips) > 1 or not all(number.isdecimal() for number in (*numbers, *skips)):
        raise ValueError(
            f"expected standard, notify-ack, backup:N, staleness:S or hybrid:N:S, with or without +skip:J, or skip:J, "
            f"got {text!r}"
        )
    return kind(*map(int, numbers)), Skip(int(skips[0])) if skips else None
