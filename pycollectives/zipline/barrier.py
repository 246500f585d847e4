"""What the algorithms return."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Barrier"]


class Barrier(NamedTuple):
    """When to impose the next barrier, and after which iteration each worker comes to it (ElasticBSP, 4.1).

    In the unit of the rows: `int` milliseconds or `float` seconds.
    """

    t_sync: int | float
    """When the last worker has come, max(Z*): the barrier's time."""

    d: int | float
    """How long the first worker waits for the last one, max(Z*) - min(Z*)."""

    iterations: tuple[int, ...]
    """The index of each worker's point in its row. Of several in the window, the exact algorithms give the latest."""
