"""Graphs by name and number of ranks. Each is connected; all but `exponential` are symmetric."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..support.validation import checked_integer
from .graph import Topology

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


def ring(size: int) -> Topology:
    """Return a ring of `size` ranks: an edge between each rank and the next one. Degree 2.

    >>> ring(5).in_neighbors(0)
    (1, 4)
    """
    size = checked_integer("ring: size", size, at_least=1)
    return _undirected("ring", size, _circulant(size, [1]))


def ring_based(size: int) -> Topology:
    """Return a ring where each rank is also connected to the most distant rank (Hop, Figure 11). Degree 3.

    If `size` is odd, a rank has two most distant ranks, and the degree is 4.

    >>> ring_based(8).in_neighbors(0)
    (1, 4, 7)
    """
    size = checked_integer("ring-based: size", size, at_least=1)
    return _undirected("ring-based", size, _circulant(size, [1, size // 2]))


def double_ring(size: int) -> Topology:
    """Return two ring-based graphs of half the size, connected node to node (Hop, Figure 11). Degree 4.

    Ranks below size / 2 form the first graph. An odd `size` raises `ValueError`.

    >>> double_ring(16).in_neighbors(0)
    (1, 4, 7, 8)
    """
    size = checked_integer("double-ring: size", size, at_least=1)
    if size % 2:
        raise ValueError(f"double-ring: expected an even number of ranks, got {size}")
    half = size // 2
    inner = [*_circulant(half, [1, half // 2])]
    outer = ((rank + half, peer + half) for rank, peer in inner)
    return _undirected("double-ring", size, [*inner, *outer, *((rank, rank + half) for rank in range(half))])


def exponential(size: int) -> Topology:
    """Return the directed exponential graph: rank r sends to r + 1, r + 2, r + 4, ..., modulo the size (SGP).

    Uniform weights are doubly stochastic. In- and out-degree are ceil(log2 `size`).

    >>> exponential(8).out_neighbors(7)
    (0, 1, 3)
    """
    size = checked_integer("exponential: size", size, at_least=1)
    return Topology(size, _circulant(size, powers_of_two(size)), name="exponential")


def bipartite_exponential(size: int) -> Topology:
    """Return an undirected bipartite graph: even and odd ranks that are 1 or 2^i + 1 hops apart, i >= 1.

    Hops go around the circle of ranks in either direction, as in the graph with which the authors of SGP ran AD-PSGD.
    If `size` is odd, hops across rank 0 join ranks of the same parity; the graph leaves them out.

    >>> bipartite_exponential(8).in_neighbors(0)
    (1, 3, 5, 7)
    """
    size = checked_integer("bipartite-exponential: size", size, at_least=1)
    hops = [1, *(power + 1 for power in powers_of_two(size)[1:])]
    edges = ((rank, peer) for rank, peer in _circulant(size, hops) if (rank - peer) % 2)
    return _undirected("bipartite-exponential", size, edges)


def hypercube(size: int) -> Topology:
    """Return a hypercube: edges between ranks whose numbers differ in one bit. Degree log2 size.

    A `size` that is not a power of two raises `ValueError`.

    >>> hypercube(8).in_neighbors(5)
    (1, 4, 7)
    """
    size = checked_integer("hypercube: size", size, at_least=1)
    if size & (size - 1):
        raise ValueError(f"hypercube: expected a power of two as the number of ranks, got {size}")
    return _undirected("hypercube", size, ((rank, rank ^ bit) for rank in range(size) for bit in powers_of_two(size)))


def torus(size: int) -> Topology:
    """Return a torus of rows and columns, as square as `size` allows; a ring if `size` is prime.

    Rank r is in row r // columns. The number of rows is the largest divisor of the size that is not greater than its
    square root. Degree 4, or less if a row or column has fewer than 3 ranks.

    >>> torus(12).in_neighbors(0)
    (1, 3, 4, 8)
    """
    size = checked_integer("torus: size", size, at_least=1)
    rows = next(divisor for divisor in range(math.isqrt(size), 0, -1) if size % divisor == 0)
    columns = size // rows
    along = ((rank, rank - rank % columns + (rank + 1) % columns) for rank in range(size))
    across = ((rank, (rank + columns) % size) for rank in range(size))
    return _undirected("torus", size, [*along, *across])


def star(size: int) -> Topology:
    """Return a star of `size` ranks: an edge between rank 0 and each other rank.

    >>> star(4).in_neighbors(3)
    (0,)
    """
    size = checked_integer("star: size", size, at_least=1)
    return _undirected("star", size, ((0, rank) for rank in range(1, size)))


def complete(size: int) -> Topology:
    """Return the complete graph of `size` ranks: an edge between every two ranks.

    >>> complete(4).in_neighbors(2)
    (0, 1, 3)
    """
    size = checked_integer("complete: size", size, at_least=1)
    return _undirected("complete", size, ((rank, peer) for rank in range(size) for peer in range(rank)))


def two_level(nodes: Sequence[int], gates: int = 1) -> Topology:
    """Return a complete graph within each node, and a ring of nodes (Hop, 7.3.6).

    Use it if links between nodes are slow: it has fewer such links than graphs that ignore nodes.

    Parameters
    ----------
    nodes
        The node of each rank, such as `Communicator.nodes`. An empty sequence raises `ValueError`.
    gates
        If 1, both links of a node end at its lowest rank (Figure 21 (b)). If 2, the link to the next node ends at the
        node's second rank, if the node has two (Figure 21 (c)).

    >>> two_level([0, 0, 0, 1, 1, 2]).in_neighbors(0)
    (1, 2, 3, 5)
    >>> two_level([0, 0, 0, 1, 1, 2], gates=2).in_neighbors(1)
    (0, 2, 3)
    """
    checked_integer("two-level: gates", gates, at_least=1, at_most=2)
    of_rank = [checked_integer(f"two-level: nodes[{rank}]", node, at_least=0) for rank, node in enumerate(nodes)]
    size = checked_integer("two-level: ranks", len(of_rank), at_least=1)
    within = ((rank, peer) for rank in range(size) for peer in range(rank) if of_rank[rank] == of_rank[peer])
    members: dict[int, list[int]] = {}
    for rank, node in enumerate(of_rank):
        members.setdefault(node, []).append(rank)
    enters = [ranks[0] for ranks in members.values()]
    leaves = [ranks[:gates][-1] for ranks in members.values()]
    between = zip(leaves, enters[1:] + enters[:1], strict=True)
    return _undirected("two-level", size, [*within, *between])


def powers_of_two(size: int) -> list[int]:
    """Return 1, 2, 4, ... below `size`."""
    return [1 << exponent for exponent in range((size - 1).bit_length())]


def _circulant(size: int, hops: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the edges from each rank to the ranks `hops` further around the circle."""
    for hop in hops:
        if hop % size:
            yield from ((rank, (rank + hop) % size) for rank in range(size))


def _undirected(name: str, size: int, edges: Iterable[tuple[int, int]]) -> Topology:
    pairs = [(rank, peer) for rank, peer in edges if rank != peer]
    return Topology(size, [*pairs, *((peer, rank) for rank, peer in pairs)], name=name)
