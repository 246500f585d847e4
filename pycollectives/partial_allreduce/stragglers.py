"""Counts of the rounds in which ranks had no data, and a warning about stragglers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


_logger = logging.getLogger("pycollectives")


class Straggler(NamedTuple):
    """Counts of the rounds in which a rank had no data. Ranks that have left count as stragglers from then on.

    Attributes
    ----------
    rank
        The rank.
    absent
        Rounds without its data, apart from flushes.
    longest
        The longest run of such rounds.
    """

    rank: int
    absent: int
    longest: int


class StragglerWarning:
    """Log a line for each rank that was absent from more than a share of the rounds since the last check.

    `share` is the value of `PYC_STRAGGLER_WARNING`. If None, nothing is logged.
    """

    def __init__(self, share: float | None) -> None:
        self.share = share
        self._rounds = 0
        self._absent: dict[int, int] = {}

    def check(self, name: str, rounds: int, stragglers: Sequence[Straggler]) -> None:
        """Log the stragglers of the collective `name`, which has completed `rounds` rounds."""
        new = rounds - self._rounds
        if self.share is None or new == 0:
            return
        for each in stragglers:
            absent = each.absent - self._absent.get(each.rank, 0)
            if absent > self.share * new:
                text = "pycollectives: %s: rank %d had no data in %d of %d rounds (%.0f %%), at most %d in a row."
                _logger.warning(text, name, each.rank, absent, new, 100 * absent / new, each.longest)
        self._rounds, self._absent = rounds, {each.rank: each.absent for each in stragglers}
