"""The papers' bounds, against direct computations."""

import numpy as np
import pytest

from pycollectives import topology
from pycollectives.simulation import mixing
from pycollectives.simulation.theory import (
    PairwiseProblem,
    eager_rate_bound,
    gap_between_others,
    least_iterations,
    model_distance_bound,
    pairwise_bound,
    pairwise_rate,
    pairwise_rate_bound,
)


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
    assert graph.rho() == pytest.approx(sampled, abs=0.01)


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
    assert graph.rho() == pytest.approx(kept, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "gap"), [("ring-based", 0.6667), ("two-level:4+2+2", 0.2682), ("two-level:4+2+2:2", 0.2688)]
)
def test_the_graphs_of_figure_21_have_hops_gaps(name, gap):
    assert gap_between_others(topology.by_name(name, 8)) == pytest.approx(gap, abs=5e-5)


QUADRATIC = PairwiseProblem(
    ranks=4,
    batch=2,
    smoothness=0.5,
    variance=0.0,
    spread=0.0,
    staleness=3,
    rho=topology.complete(4).rho(),
    excess=0.0,
)


def trained(problem, rate, iterations, runs=200):
    """The mean squared gradient of the mean model of L / 2 x^2 under AD-PSGD, over iterations and runs."""
    draws = np.random.default_rng(5)
    ranks, batch, at = problem.ranks, problem.batch, np.arange(runs)
    start = np.sqrt(2 * problem.excess / problem.smoothness)
    models = np.full((problem.staleness + 1, ranks, runs), start)  # the newest, and those before
    total = 0.0
    for _ in range(iterations):
        total += np.square(problem.smoothness * models[0].mean(axis=0)).mean()
        rank = draws.integers(ranks, size=runs)
        read = models[draws.integers(problem.staleness + 1, size=runs), rank, at]
        noise = draws.normal(0, np.sqrt(problem.variance), (batch, runs))
        peer = (rank + draws.integers(1, ranks, size=runs)) % ranks
        now = models[0].copy()
        now[rank, at] = now[peer, at] = (now[rank, at] + now[peer, at]) / 2
        now[rank, at] -= rate * (problem.smoothness * read + noise).sum(axis=0)
        models = np.concatenate([now[None], models[:-1]])
    return total / iterations


@pytest.mark.parametrize("changed", [{"variance": 2.0}, {"excess": 3.0}], ids=str)
def test_theorem_1_bounds_the_gradients_of_ad_psgd(changed):
    """Of a quadratic the noise causes a fourth of its part of the bound, and the way to the optimum a half of its."""
    problem = QUADRATIC._replace(**changed)
    rate, iterations = 1e-3, 12000
    bound = pairwise_bound(problem, rate=rate, iterations=iterations)
    assert bound / 8 < trained(problem, rate, iterations) < bound


def test_theorem_1_is_silent_about_high_rates():
    assert pairwise_bound(QUADRATIC, rate=2e-3, iterations=1000) == np.inf, "C_3 > 1"
    assert pairwise_bound(QUADRATIC, rate=1.0, iterations=1000) == np.inf, "C_1 < 0"
    late = QUADRATIC._replace(rho=0.0, staleness=6)
    assert pairwise_bound(late, rate=2e-2, iterations=1000) < np.inf
    assert pairwise_bound(late, rate=4e-2, iterations=1000) == np.inf
    assert pairwise_bound(late._replace(staleness=0), rate=4e-2, iterations=1000) < np.inf


def test_corollary_2_follows_from_theorem_1():
    draws = np.random.default_rng(3)
    for _ in range(300):
        ranks = int(draws.integers(2, 200))
        problem = PairwiseProblem(
            ranks=ranks,
            batch=int(draws.integers(1, 300)),
            smoothness=float(10 ** draws.uniform(-3, 3)),
            variance=float(10 ** draws.uniform(-3, 3)),
            spread=float(draws.choice([0, 10 ** draws.uniform(-3, 3)])),
            staleness=int(draws.integers(0, 3 * ranks)),
            rho=float(1 - 10 ** draws.uniform(-6, 0)),
            excess=float(10 ** draws.uniform(-3, 3)),
        )
        for times in (1, 7, 1e4):
            iterations = int(np.ceil(times * least_iterations(problem))) + 1
            rate = pairwise_rate(problem, iterations)
            proved = pairwise_bound(problem, rate=rate, iterations=iterations)
            assert 0 < proved <= pairwise_rate_bound(problem, iterations) * (1 + 1e-9)
            # The way to the optimum takes the same part of both.
            way = 2 * problem.excess * ranks / (rate * iterations * problem.batch)
            noise = np.sqrt(problem.noise / problem.batch / iterations)
            first = 20 * problem.excess * problem.smoothness / iterations
            assert way == pytest.approx(first + 2 * problem.excess * noise)
        assert pairwise_rate_bound(problem, int(0.99 * least_iterations(problem)) - 1) == np.inf


def test_equation_8_by_hand():
    """M L^2 n^2 / (sigma^2 + 6 M varsigma^2) times the largest of four terms, each in its place."""
    of = {"ranks": 4, "batch": 3, "smoothness": 2.0, "variance": 5.0, "spread": 0.5, "excess": 1.0}
    factor = 3 * 4 * 16 / (5 + 9)
    still = PairwiseProblem(**of, staleness=0, rho=0.0)  # rho-bar 3/4
    assert least_iterations(still) == pytest.approx(factor * 1024 * 16 * 0.75**2)
    assert least_iterations(still._replace(staleness=20)) == pytest.approx(factor * 64 * 20**4 / 16)
    many = still._replace(ranks=2, staleness=2, variance=14.0, spread=0.0)  # rho-bar 1/2
    fourth = (8 * 6**0.5 * 2 ** (2 / 3) + 8) ** 2 * (2 + 0.5 * 2) ** (2 / 3) / 2 ** (1 / 6)
    assert least_iterations(many) == pytest.approx(3 * 4 * 4 / 14 * fourth)
    assert least_iterations(still._replace(variance=0.0, spread=0.0)) == np.inf


def test_ad_psgd_speeds_up_with_the_workers_and_the_batch():
    """Remarks 3 and 4: with as many updates, the bound does not depend on n, and falls as 1 / sqrt(M)."""
    of = {"smoothness": 1.0, "variance": 1.0, "spread": 0.0, "staleness": 4, "rho": 0.9, "excess": 1.0}
    bound = {
        (n, m): pairwise_rate_bound(PairwiseProblem(ranks=n, batch=m, **of), 10**16) for n in (4, 16) for m in (1, 4)
    }
    assert bound[4, 1] == bound[16, 1] == pytest.approx(2 * bound[16, 4], rel=1e-3)
