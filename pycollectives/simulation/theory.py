"""Bounds and constants of the papers' theorems."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from .mixing import mean_matrix, spectral_gap

if TYPE_CHECKING:
    from ..topology.graph import Topology


def model_distance_bound(*, rate: float, ranks: int, quorum: int, staleness: int, moment: float) -> float:
    """Return eager-SGD's bound on the mean squared distance of a replica from the model of all gradients (Lemma 6.2).

    Parameters
    ----------
    rate
        The constant learning rate, alpha.
    ranks
        P.
    quorum
        Q, the least number of contributors of a round, such as `k` of `Quorum(k)`.
    staleness
        tau, the most rounds that a gradient waits: `max_staleness`.
    moment
        M, a bound on the root of a gradient's mean square.

    >>> model_distance_bound(rate=0.1, ranks=4, quorum=4, staleness=2, moment=1.0)
    0.0
    """
    return rate**2 * staleness * moment**2 * (ranks - quorum) / ranks**2


def eager_rate_bound(
    *, ranks: int, quorum: int, staleness: int, smoothness: float, moment: float, accuracy: float
) -> float:
    """Return the largest constant learning rate for which eager-SGD is proved to converge (Theorem 6.3).

    Some iterate then has a mean squared gradient of at most `accuracy`. The other parameters are as of
    `model_distance_bound`; `smoothness` is L, the Lipschitz constant of the gradient.

    With all ranks in every round, only the bound of synchronous SGD is left:

    >>> eager_rate_bound(ranks=4, quorum=4, staleness=0, smoothness=1.0, moment=1.0, accuracy=0.12)
    0.01
    """
    bounds = [accuracy / (12 * moment**2 * smoothness)]
    if late := staleness * moment**2 * (ranks - quorum):
        bounds += [sqrt(accuracy) * ranks / sqrt(factor * late) for factor in (12 * smoothness**2, 4 * smoothness)]
    return min(bounds)


def rho_of_pairs(graph: Topology) -> float:
    """Return AD-PSGD's rho of a symmetric graph: the second largest eigenvalue modulus of E[W^T W] (Assumption 1.3).

    In each iteration a rank, drawn uniformly, averages with a neighbor, drawn uniformly.

    >>> from pycollectives import topology
    >>> round(rho_of_pairs(topology.complete(4)), 6)
    0.666667
    """
    pairs = [(rank, peer) for rank in range(graph.size) for peer in graph.in_neighbors(rank) if peer != rank]
    degree = {rank: sum(1 for other, _ in pairs if other == rank) for rank in range(graph.size)}
    shares = [1 / (graph.size * degree[rank]) for rank, _ in pairs]
    weighted = [share * mean_matrix([pair], graph.size) for share, pair in zip(shares, pairs, strict=True)]
    return 1 - spectral_gap(np.sum(weighted, axis=0))
