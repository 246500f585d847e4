"""Bounds and constants of the papers' theorems."""

from __future__ import annotations

from math import inf, sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from ..topology.graph import Topology


def model_distance_bound(*, rate: float, ranks: int, quorum: int, staleness: int, moment: float) -> float:
    """Return eager-SGD's bound on the mean squared distance of a replica from the model of all gradients (Lemma 6.2).

    Parameters
    ----------
    rate
        The constant learning rate, alpha.
    ranks
        P, the number of ranks.
    quorum
        Q, the least number of contributors to a round, such as `k` of `Quorum(k)`.
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

    Some iterate then has a mean squared gradient of at most `accuracy`. The other parameters are as in
    `model_distance_bound`; `smoothness` is L, the Lipschitz constant of the gradient.

    With all ranks in every round, this is the bound of synchronous SGD:

    >>> eager_rate_bound(ranks=4, quorum=4, staleness=0, smoothness=1.0, moment=1.0, accuracy=0.12)
    0.01
    """
    bounds = [accuracy / (12 * moment**2 * smoothness)]
    if late := staleness * moment**2 * (ranks - quorum):
        bounds += [sqrt(accuracy) * ranks / sqrt(factor * late) for factor in (12 * smoothness**2, 4 * smoothness)]
    return min(bounds)


def gap_between_others(graph: Topology) -> float:
    """Return Hop's spectral gap: 1 - lambda_2 for uniform weights of the neighbors (Figure 21).

    Unlike in `Topology.spectral_gap`, a rank's own value has no weight. The graph is symmetric and connected, and has
    at least two ranks.

    >>> from pycollectives import topology
    >>> round(gap_between_others(topology.ring_based(8)), 4)
    0.6667
    """
    weights = np.zeros((graph.size, graph.size))
    for rank in range(graph.size):
        peers = list(graph.in_neighbors(rank))
        weights[rank, peers] = 1 / len(peers)
    return float(1 - np.sort(np.linalg.eigvals(weights).real)[-2])


class PairwiseProblem(NamedTuple):
    """A problem as AD-PSGD's Theorem 1 and Corollary 2 describe it (section 4).

    Attributes
    ----------
    ranks
        n, the number of ranks.
    batch
        M, the number of examples whose gradients are summed.
    smoothness
        L, the Lipschitz constant of the gradient.
    variance
        sigma^2, of the gradients of a rank's examples.
    spread
        varsigma^2, the mean squared distance of the ranks' gradients from their mean; 0 if all ranks read all data.
    staleness
        T, the most iterations between the read of a model and the update by its gradient. Each update of any rank is an
        iteration.
    rho
        `Topology.rho` of the graph; less than 1.
    excess
        f(x_0) - f(x*): the initial loss minus the smallest one.
    """

    ranks: int
    batch: int
    smoothness: float
    variance: float
    spread: float
    staleness: int
    rho: float
    excess: float

    @property
    def noise(self) -> float:
        """Return sigma^2 + 6 M varsigma^2."""
        return self.variance + 6 * self.batch * self.spread

    @property
    def mixing(self) -> float:
        """Return rho-bar, which grows as values spread more slowly."""
        n, root = self.ranks, sqrt(self.rho)
        return (n - 1) / n * (1 / (1 - self.rho) + 2 * root / (1 - root) ** 2)

    @property
    def delay(self) -> float:
        """Return T (n - 1) / n + rho-bar."""
        return self.staleness * (self.ranks - 1) / self.ranks + self.mixing


def pairwise_bound(problem: PairwiseProblem, *, rate: float, iterations: int) -> float:
    """Return AD-PSGD's bound on the mean squared gradient of the mean model over K iterations (Theorem 1).

    `rate` is gamma, the rate for the sum of a batch's gradients: the rate for their mean, divided by M. The result is
    `inf` if the rate is too large for the theorem.
    """
    n, m, lipschitz, t = problem.ranks, problem.batch, problem.smoothness, problem.staleness
    step = rate * m * lipschitz  # gamma M L, without a unit
    c1 = 1 - 24 * step**2 * problem.delay
    if c1 <= 0:
        return inf
    # C_2, divided by gamma M / n
    late = (6 * step / n + 1 + 12 * t**2 * step**2 / n**2) * 4 * step**2 * problem.delay / c1
    c2 = 1 / 2 - step / n - 2 * t**2 * step**2 / n**2 - late
    apart = 2 * (6 * step**2 + n * step + 12 * t**2 * step**3 / n) * problem.mixing / c1
    c3 = 1 / 2 + apart + t**2 * step / n
    if c2 < 0 or c3 > 1:
        return inf
    return 2 * problem.excess * n / (rate * iterations * m) + 2 * rate * lipschitz * problem.noise / n


def pairwise_rate(problem: PairwiseProblem, iterations: int) -> float:
    """Return AD-PSGD's learning rate for K iterations (Corollary 2), as `rate` of `pairwise_bound`."""
    m = problem.batch
    return problem.ranks / (10 * m * problem.smoothness + sqrt(problem.noise * iterations * m))


def pairwise_rate_bound(problem: PairwiseProblem, iterations: int) -> float:
    """Return AD-PSGD's bound at the rate of Corollary 2 (equation 7). For large K, its order is 1 / sqrt(K).

    The bound is `inf` for fewer than `least_iterations`.
    """
    if iterations < least_iterations(problem):
        return inf
    lipschitz, excess = problem.smoothness, problem.excess
    deviation = sqrt(problem.noise / problem.batch)
    return 20 * excess * lipschitz / iterations + 2 * (excess + lipschitz) * deviation / sqrt(iterations)


def least_iterations(problem: PairwiseProblem) -> float:
    """Return the fewest iterations for which Corollary 2 holds (equation 8); `inf` if gradients have no noise."""
    n, t = problem.ranks, problem.staleness
    if not problem.noise:
        return inf
    spread = t + problem.mixing * n / (n - 1) if n > 1 else t
    terms = (
        192 * problem.delay,
        64 * t**4 / n**2,
        1024 * n**2 * problem.mixing**2,
        (8 * sqrt(6) * t ** (2 / 3) + 8) ** 2 * spread ** (2 / 3) * (n - 1) ** (1 / 2) / n ** (1 / 6),
    )
    return float(problem.batch * problem.smoothness**2 * n**2 / problem.noise * max(terms))
