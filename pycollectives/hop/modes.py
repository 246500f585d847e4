"""How a rank of Hop waits for its neighbors.

Section numbers refer to Luo et al., "Hop: Heterogeneity-aware Decentralized Training", ASPLOS 2019. In the paper, the
in-neighbors of a rank include the rank itself; its own update is always available.

| mode | a rank ends iteration k when it has |
|---|---|
| `Standard()` | the update of iteration k of each in-neighbor (section 4.1) |
| `NotifyAck()` | the same, and all out-neighbors' acknowledgments of its previous update (section 3.3) |
| `BackupWorkers(n)` | the updates of iteration k of all in-neighbors but n (section 4.3) |
| `BoundedStaleness(s)` | an update of iteration k - s or later of each in-neighbor (section 4.4) |
| `Hybrid(n, s)` | an update of iteration k - s or later of all in-neighbors but n (Table 1) |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from ..support.validation import Declared, integer

MOST = 1 << 62
"""Limit of iterations and updates: the sum of two fits into 64 bits."""


def _checked_backup(kind: str, name: str, value: Any) -> int | tuple[int, ...]:
    of_all, of_each = (integer(at_least=least, at_most=MOST)["check"] for least in (1, 0))
    if not isinstance(value, Sequence | np.ndarray) or isinstance(value, str):
        return of_all(kind, name, value)  # type: ignore[no-any-return]
    return tuple(of_each(kind, f"{name} of each rank", each) for each in value)


_BACKUP = {"check": _checked_backup, "engine": "backup"}


@dataclass(frozen=True)
class Mode(Declared):
    """Base class of the modes; not a mode itself."""

    acknowledges: ClassVar[bool] = False
    """Whether updates are acknowledged."""

    @property
    def _backup(self) -> int | tuple[int, ...]:
        return self._declared().get("backup", 0)  # type: ignore[no-any-return]

    def backup_of(self, rank: int) -> int:
        """Return the number of a rank's in-neighbors whose updates may be missing: N_buw in Fig. 8 of Hop."""
        return self._backup if isinstance(self._backup, int) else self._backup[rank]

    def check_size(self, size: int) -> None:
        """Raise ValueError if the mode is for a different number of ranks."""
        if not isinstance(self._backup, int) and len(self._backup) != size:
            raise ValueError(f"{self!r}: expected {size} numbers, one for each rank, got {len(self._backup)}")

    @property
    def staleness(self) -> int | None:
        """The largest age of an update in iterations; None if all updates must be of the current iteration."""
        return self._declared().get("staleness")

    @property
    def bound_by_updates(self) -> float:
        """The largest lead over an in-neighbor that this mode allows, in iterations: Hop, Table 1, first column."""
        if self._backup:
            return float("inf")
        return (self.staleness or 0) + 1

    def engine_arguments(self, size: int) -> dict[str, Any]:
        """Return the arguments that describe this mode to the engine and the simulator."""
        backup = [self.backup_of(rank) for rank in range(size)]
        return {"backup": backup, "staleness": self.staleness, "acks": self.acknowledges}


@dataclass(frozen=True)
class Standard(Mode):
    """Wait for every in-neighbor's update of the same iteration: Hop, section 4.1.

    >>> Standard()
    Standard()
    """


@dataclass(frozen=True)
class NotifyAck(Mode):
    """Send an update only after all out-neighbors have acknowledged the previous one: Hop, section 3.3.

    Use this older scheme only for comparison. It keeps neighbors within 2 iterations of each other, too close
    for backup workers or bounded staleness to help.

    >>> NotifyAck()
    NotifyAck()
    """

    acknowledges: ClassVar[bool] = True


@dataclass(frozen=True)
class BackupWorkers(Mode):
    """Wait for the updates of the same iteration from all in-neighbors but `n`: Hop, section 4.3.

    All updates that arrive in time are averaged; later ones are discarded. Use this mode if ranks are occasionally
    slow.

    Parameters
    ----------
    n
        The number of in-neighbors for which a rank does not wait, from 1 to each rank's number of in-neighbors.
        In a sequence with a number for each rank, numbers may be 0.

    >>> BackupWorkers(1)
    BackupWorkers(n=1)
    >>> BackupWorkers([2, 0, 1]).backup_of(0)
    2
    """

    n: int | Sequence[int] = field(metadata=_BACKUP)


@dataclass(frozen=True)
class BoundedStaleness(Mode):
    """Wait until the newest update of every in-neighbor is at most `s` iterations old: Hop, section 4.4.

    The newest update of each in-neighbor is averaged; it may be of a later iteration than this rank's. An update of
    iteration i has the weight i - (k - s) + 1 in iteration k (equation 2). This rank's own update is of iteration k.
    No update is averaged twice.

    Parameters
    ----------
    s
        The largest age of an update in iterations, at least 0.

    >>> BoundedStaleness(5)
    BoundedStaleness(s=5)
    """

    s: int = field(metadata=integer(at_least=0, at_most=MOST, engine="staleness"))


@dataclass(frozen=True)
class Hybrid(Mode):
    """Combine `BoundedStaleness(s)` with `BackupWorkers(n)`, as in Table 1 of Hop.

    Parameters
    ----------
    n
        The number of in-neighbors for which a rank does not wait, as for `BackupWorkers`.
    s
        The largest age of the other in-neighbors' updates in iterations, at least 0.

    >>> Hybrid(1, 5)
    Hybrid(n=1, s=5)
    """

    n: int | Sequence[int] = field(metadata=_BACKUP)
    s: int = field(metadata=integer(at_least=0, at_most=MOST, engine="staleness"))


@dataclass(frozen=True)
class Skip(Declared):
    """Let a rank that is far behind skip iterations: Hop, section 5.

    At the end of an iteration, a rank that is more than `trigger` iterations behind all of its out-neighbors jumps
    ahead by at most `max_jump` iterations, and not beyond any of them. Before the jump, it averages its parameters with
    updates of the iteration before the target. Use it for ranks that are always slow.

    Parameters
    ----------
    max_jump
        The largest advance in iterations, at least 1. 1 means no jump.
    trigger
        The lag in iterations above which a rank jumps, at least 1.

    >>> Skip(10)
    Skip(max_jump=10, trigger=1)
    """

    max_jump: int = field(metadata=integer(at_least=1, at_most=MOST))
    trigger: int = field(default=1, metadata=integer(at_least=1, at_most=MOST))


def parse(text: str) -> tuple[Mode, Skip | None]:
    """Return the mode and the rule for skipping that a string describes, as on command lines.

    Parameters
    ----------
    text
        "standard", "notify-ack", "backup:N", "staleness:S" or "hybrid:N:S". With "+skip:J" at its end, a rank jumps
        ahead by at most J iterations. "skip:J" is short for "backup:1+skip:J" (section 7.3.5).

    Returns
    -------
    mode : Mode
        For `Communicator.hop`.
    skip : Skip or None
        None if the string has no "skip".

    Raises
    ------
    ValueError
        `text` has none of these forms.

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
            f"expected standard, notify-ack, backup:N, staleness:S or hybrid:N:S, optionally with +skip:J, or skip:J, "
            f"got {text!r}"
        )
    return kind(*map(int, numbers)), Skip(int(skips[0])) if skips else None
