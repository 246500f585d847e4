"""The weights with which ranks average their neighbors' values.

The convention is the same everywhere: w[i, j] is the weight with which rank i takes the value of rank j. A row is a
receiver, and a step is x <- W x.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    Neighbors: TypeAlias = Sequence[tuple[int, ...]]

Matrix = npt.NDArray[np.float64]

KINDS = ("uniform", "metropolis", "push-sum", "given")


def row(
    kind: str, rank: int, incoming: Neighbors, outgoing: Neighbors, given: Matrix | None
) -> tuple[float, dict[int, float]]:
    """Return a rank's own weight and the weight of each in-neighbor, for a kind that the graph has."""
    neighbors = incoming[rank]
    if kind == "given":
        assert given is not None
        return float(given[rank, rank]), {peer: float(given[rank, peer]) for peer in neighbors}
    if kind == "uniform":
        share = 1 / (len(neighbors) + 1)
        return share, dict.fromkeys(neighbors, share)
    if kind == "push-sum":
        return 1 / (len(outgoing[rank]) + 1), {peer: 1 / (len(outgoing[peer]) + 1) for peer in neighbors}
    weights = {peer: 1 / (1 + max(len(neighbors), len(incoming[peer]))) for peer in neighbors}
    return 1 - math.fsum(weights.values()), weights


def dense(kind: str, incoming: Neighbors, outgoing: Neighbors, given: Matrix | None) -> Matrix:
    """Return the matrix of a kind that the graph has, of shape (P, P)."""
    if kind == "given":
        assert given is not None
        return given.copy()
    matrix = np.zeros((len(incoming), len(incoming)))
    for rank in range(len(incoming)):
        own, weights = row(kind, rank, incoming, outgoing, given)
        matrix[rank, rank] = own
        matrix[rank, [*weights]] = [*weights.values()]
    return matrix


def sums(kind: str, incoming: Neighbors, outgoing: Neighbors, given: Matrix | None) -> tuple[Matrix, Matrix]:
    """Return the sums of the rows and of the columns, without making the matrix."""
    rows, columns = np.zeros(len(incoming)), np.zeros(len(incoming))
    for rank in range(len(incoming)):
        own, weights = row(kind, rank, incoming, outgoing, given)
        rows[rank] = own + math.fsum(weights.values())
        columns[rank] += own
        for peer, weight in weights.items():
            columns[peer] += weight
    return rows, columns
