"""The papers' bounds, against direct computations."""

import numpy as np
import pytest

from pycollectives import topology
from pycollectives.simulation import mixing
from pycollectives.simulation.theory import eager_rate_bound, model_distance_bound, rho_of_pairs


def test_lemma_6_2_bounds_the_distance_of_late_gradients():
    """Ranks whose gradients of norm M wait for tau rounds, as few as the quorum lets."""
    ranks, quorum, staleness, moment, rate = 6, 4, 3, 2.0, 0.1
    draws = np.random.default_rng(0)
    gradients = draws.standard_normal((2000, staleness, ranks - quorum, 50))
    gradients *= moment / np.linalg.norm(gradients, axis=-1, keepdims=True)
    distance = np.square(rate * gradients.sum(axis=(1, 2)) / ranks).sum(axis=-1).mean()
    bound = model_distance_bound(rate=rate, ranks=ranks, quorum=quorum, staleness=staleness, moment=moment)
    assert distance == pytest.approx(bound, rel=0.02), "attained where gradients are orthogonal"


def test_theorem_6_3_is_the_least_of_its_three_terms():
    base = {"ranks": 8, "quorum": 1, "staleness": 4, "smoothness": 2.0, "moment": 3.0, "accuracy": 0.5}
    terms = (
        0.5**0.5 * 8 / (12 * 4 * 4 * 9 * 7) ** 0.5,
        0.5**0.5 * 8 / (4 * 2 * 4 * 9 * 7) ** 0.5,
        0.5 / (12 * 9 * 2),
    )
    assert eager_rate_bound(**base) == pytest.approx(min(terms))
    assert eager_rate_bound(**{**base, "staleness": 10**6}) == pytest.approx(terms[0] / 500)
    flat = {**base, "staleness": 10**6, "smoothness": 0.1}
    assert eager_rate_bound(**flat) == pytest.approx(0.5**0.5 * 8 / (4 * 0.1 * 10**6 * 9 * 7) ** 0.5)


@pytest.mark.parametrize("name", ["ring", "star", "bipartite-exponential"])
def test_rho_is_of_the_mean_of_random_averages(name):
    size = 8
    graph = topology.by_name(name, size)
    draws = np.random.default_rng(1)
    pairs = []
    for _ in range(40000):
        rank = int(draws.integers(size))
        pairs.append((rank, int(draws.choice(graph.in_neighbors(rank)))))
    sampled = 1 - mixing.spectral_gap(mixing.mean_matrix(pairs, size))
    assert rho_of_pairs(graph) == pytest.approx(sampled, abs=0.01)


def test_rho_shrinks_distances_as_said():
    """A step shrinks the mean squared distance from the mean by rho at least; where it begins in its eigenvector."""
    graph = topology.ring(6)
    rho = rho_of_pairs(graph)
    values = np.cos(2 * np.pi * np.arange(6) / 6)
    after = []
    for rank in range(6):
        for peer in graph.in_neighbors(rank):
            averaged = values.copy()
            averaged[[rank, peer]] = values[[rank, peer]].mean()
            after.append(np.square(averaged).sum())
    assert np.mean(after) == pytest.approx(rho * np.square(values).sum())
