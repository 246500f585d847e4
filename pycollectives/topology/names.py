"""Topologies by name, for options and experiments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..support.validation import checked_choice
from .families import (
    bipartite_exponential,
    complete,
    double_ring,
    exponential,
    hypercube,
    ring,
    ring_based,
    star,
    torus,
    two_level,
)
from .time_varying import alternating_exponential_ring, one_peer_exponential

if TYPE_CHECKING:
    from collections.abc import Callable

    from .graph import Topology
    from .time_varying import TimeVarying

__all__ = ["NAMES", "by_name"]

_MAKERS: dict[str, Callable[[int], Topology | TimeVarying]] = {
    "ring": ring,
    "ring-based": ring_based,
    "double-ring": double_ring,
    "exponential": exponential,
    "bipartite-exponential": bipartite_exponential,
    "hypercube": hypercube,
    "torus": torus,
    "star": star,
    "complete": complete,
    "one-peer-exponential": one_peer_exponential,
    "alternating-exponential-ring": alternating_exponential_ring,
}

NAMES = tuple(_MAKERS)


def by_name(name: str, size: int) -> Topology | TimeVarying:
    """Return the topology of `size` ranks for a name of `NAMES`, or "two-level:K" for nodes of K ranks each.

    `ValueError` for another name.

    >>> by_name("ring-based", 16)
    <Topology ring-based of 16 ranks, 24 edges>
    >>> by_name("two-level:4", 8)
    <Topology two-level of 8 ranks, 13 edges>
    """
    kind, _, ranks = name.partition(":") if isinstance(name, str) else (name, "", "")
    if kind == "two-level":
        if not (ranks.isascii() and ranks.isdecimal() and int(ranks)):
            raise ValueError(f"topology: expected two-level:K, with K ranks per node, got {name!r}")
        return two_level([rank // int(ranks) for rank in range(size)])
    return _MAKERS[checked_choice("topology", name, NAMES)](size)
