"""Topologies by name, for options and experiments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..support.validation import checked_choice
from . import families, time_varying

if TYPE_CHECKING:
    from collections.abc import Callable

    from .graph import Topology
    from .time_varying import TimeVarying

NAMES = (
    *("ring", "ring-based", "double-ring", "exponential", "bipartite-exponential", "hypercube", "torus", "star"),
    *("complete", "one-peer-exponential", "alternating-exponential-ring"),
)


def by_name(name: str, size: int) -> Topology | TimeVarying:
    """Return the topology of `size` ranks whose `name` is in `NAMES`, or "two-level:K" for nodes of K ranks each.

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
        return families.two_level([rank // int(ranks) for rank in range(size)])
    function = checked_choice("topology", name, NAMES).replace("-", "_")
    make: Callable[[int], Topology | TimeVarying]
    make = getattr(families, function, None) or getattr(time_varying, function)
    return make(size)
