"""The result of the algorithms."""

from __future__ import annotations

from typing import NamedTuple


class Barrier(NamedTuple):
    """The time of the next barrier, and the iteration after which each worker reaches it (ElasticBSP, 4.1).

    In the unit of the rows: `int` milliseconds or `float` seconds.
    """

    t_sync: int | float
    """The barrier's time, max(Z*): the arrival of the last worker."""

    d: int | float
    """The time for which the first worker waits for the last one, max(Z*) - min(Z*)."""

    iterations: tuple[int, ...]
    """The index of each worker's point in its row. If the window has several, the exact algorithms give the latest."""
