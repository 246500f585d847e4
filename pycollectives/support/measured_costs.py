"""The costs of messages between nodes, measured at the creation of a communicator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .costs import REDUCE_PER_BYTE, Costs
from .nodes import farthest_of, has_core_per_rank

if TYPE_CHECKING:
    from .. import _core
    from .nodes import Place


def measured_costs(engine: _core.Engine, nodes: list[int], places: list[Place], timeout: float | None) -> Costs | None:
    """Return the costs of messages between nodes, the same on all ranks; None if a table is used. Collective."""
    from .native import core

    other = farthest_of(nodes, places)
    if other is None or not has_core_per_rank(places) or any(place.tuned for place in places):
        return None
    latency, overhead, gap_per_byte = core.measure_messages(engine, other=other, timeout=timeout)
    return Costs(latency, overhead, gap_per_byte, REDUCE_PER_BYTE)
