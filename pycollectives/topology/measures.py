"""Measures of a graph: distances, sides, and the speed at which averages along its edges mix."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    from .weights import Matrix

    Neighbors: TypeAlias = Sequence[tuple[int, ...]]


def distances(source: int, outgoing: Neighbors) -> list[int]:
    """Return the number of hops from a rank to each rank, along edges; -1 if there is no path."""
    hops = [-1] * len(outgoing)
    hops[source] = 0
    front = [source]
    missing = len(outgoing) - 1
    while front and missing:
        reached = []
        for rank in front:
            for peer in outgoing[rank]:
                if hops[peer] < 0:
                    hops[peer] = hops[rank] + 1
                    reached.append(peer)
        missing -= len(reached)
        front = reached
    return hops


def sides(incoming: Neighbors, outgoing: Neighbors) -> tuple[list[int], tuple[int, int] | None]:
    """Return the side, 0 or 1, of each rank, and an edge within a side, or None if the graph is bipartite.

    The direction of edges does not count. The lowest rank of each connected part is on side 0.
    """
    side = [-1] * len(outgoing)
    for first in range(len(outgoing)):
        if side[first] >= 0:
            continue
        side[first] = 0
        front = [first]
        while front:
            rank = front.pop()
            for peer in (*outgoing[rank], *incoming[rank]):
                if side[peer] < 0:
                    side[peer] = 1 - side[rank]
                    front.append(peer)
                elif side[peer] == side[rank]:
                    return side, (min(rank, peer), max(rank, peer))
    return side, None


def gap(matrix: Matrix) -> float:
    """Return the difference of the two largest moduli of a matrix's eigenvalues, in [0, 1]; 1 for a 1 x 1 matrix."""
    if len(matrix) == 1:
        return 1.0
    symmetric = np.array_equal(matrix, matrix.T)
    values = np.linalg.eigvalsh(matrix) if symmetric else np.linalg.eigvals(matrix)
    moduli = np.sort(np.abs(values))
    return float(min(1.0, max(0.0, moduli[-1] - moduli[-2])))


def chi(neighbors: Neighbors, rate: float) -> tuple[float, float]:
    """Return chi1 and chi2 of A2CiD2 of a connected symmetric graph; see `Topology.chi`."""
    if len(neighbors) == 1:
        return 0.0, 0.0
    laplacian = np.zeros((len(neighbors), len(neighbors)))
    for rank, peers in enumerate(neighbors):
        for peer in peers:
            laplacian[rank, peer] = -rate / 2 * (1 / len(peers) + 1 / len(neighbors[peer]))
        laplacian[rank, rank] = -laplacian[rank].sum()
    values, vectors = np.linalg.eigh(laplacian)
    # The graph is connected, so that only the first eigenvalue is 0. `roots` has the rows of the inverse's root.
    roots = vectors[:, 1:] / np.sqrt(values[1:])
    largest = max(
        float(np.square(roots[rank] - roots[[*peers]]).sum(axis=1).max()) for rank, peers in enumerate(neighbors)
    )
    return float(1 / values[1]), largest / 2
