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
    """Return the topology of `size` ranks whose `name` is in `NAMES`, or a `two_level` graph.

    "two-level:K" has nodes of K ranks each, "two-level:K+L+M" nodes of K, L and M ranks. With ":2" at the end, links
    between nodes end at two ranks of each node. `ValueError` for another name.

    >>> by_name("ring-based", 16)
    <Topology ring-based of 16 ranks, 24 edges>
    >>> by_name("two-level:4", 8)
    <Topology two-level of 8 ranks, 13 edges>
    >>> by_name("two-level:4+2+2:2", 8).in_neighbors(1)
    (0, 2, 3, 4)
    """
    if isinstance(name, str) and name.partition(":")[0] == "two-level":
        return _two_level(name, size)
    function = checked_choice("topology", name, NAMES).replace("-", "_")
    make: Callable[[int], Topology | TimeVarying]
    make = getattr(families, function, None) or getattr(time_varying, function)
    return make(size)


def _two_level(name: str, size: int) -> Topology:
    """Return the graph of "two-level:NODES" or "two-level:NODES:GATES"."""
    _, *words = name.split(":")
    sizes, gates = words[0].split("+") if words else [], words[1:]
    if not sizes or gates not in ([], ["1"], ["2"]) or not all(n.isascii() and n.isdecimal() and int(n) for n in sizes):
        raise ValueError(
            "topology: expected two-level:K, with K ranks per node, or two-level:K+L with the ranks of each node, then "
            f":1, :2 or nothing, got {name!r}"
        )
    of_each = [int(each) for each in sizes]
    if len(of_each) == 1:
        nodes = [rank // of_each[0] for rank in range(size)]
    elif sum(of_each) == size:
        nodes = [node for node, ranks in enumerate(of_each) for _ in range(ranks)]
    else:
        raise ValueError(f"topology: expected nodes with {size} ranks in total, got {name!r} with {sum(of_each)}")
    return families.two_level(nodes, gates=int(gates[0]) if gates else 1)
