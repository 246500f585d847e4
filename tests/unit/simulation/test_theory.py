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


@pytest.mark.parametrize("name", ["ring", "two-level:5", "bipartite-exponential"])
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


@pytest.mark.parametrize("name", ["ring", "two-level:5"])
def test_rho_is_how_much_of_the_slowest_distance_a_step_keeps(name):
    """By power iteration, with the mean over the exchanges of each rank and each of its neighbors."""
    graph = topology.by_name(name, 8)
    values = np.random.default_rng(2).standard_normal(8)
    for _ in range(4000):
        values -= values.mean()
        values /= np.linalg.norm(values)
        mean = np.zeros(8)
        for rank in range(8):
            peers = [peer for peer in graph.in_neighbors(rank) if peer != rank]
            for peer in peers:
                averaged = values.copy()
                averaged[[rank, peer]] = values[[rank, peer]].mean()
                mean += averaged / (8 * len(peers))
        kept, values = float(values @ mean), mean
    assert rho_of_pairs(graph) == pytest.approx(kept, abs=1e-6)
