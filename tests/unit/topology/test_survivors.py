"""Weights among the ranks that are left."""

from itertools import combinations

import numpy as np
import pytest

from pycollectives import topology
from pycollectives.topology.survivors import among, without


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("kind", ["uniform", "push-sum", "metropolis"])
def test_without_some_ranks(kind, seed):
    """Sums of rows or columns stay 1, symmetric weights stay symmetric, and connected ranks stay connected."""
    source = np.random.default_rng(seed)
    size = int(source.integers(2, 12))
    graph = topology.ring(size) if kind == "metropolis" else topology.exponential(size)
    matrix = graph.matrix(kind)
    kept = sorted(source.choice(size, int(source.integers(1, size + 1)), replace=False).tolist())
    result = without(matrix, kept)
    assert result.shape == (len(kept),) * 2
    assert (result >= 0).all()
    assert result.sum(axis=0 if kind == "push-sum" else 1) == pytest.approx(1)
    assert kind != "metropolis" or result == pytest.approx(result.T)
    reached = np.linalg.matrix_power(result, len(kept))
    assert (reached > 0).all()
    if len(kept) == size:
        assert result == pytest.approx(matrix)


def test_what_would_not_leave_the_others_stays():
    """Rank 0 gives half to rank 1, and ranks 1 and 2 only to each other."""
    matrix = np.array([[0.5, 0, 0], [0.5, 0.5, 0.5], [0, 0.5, 0.5]])
    assert without(matrix, [0]).tolist() == [[1.0]]
    assert without(matrix.T.copy(), [0]) == pytest.approx(np.array([[1.0]]))


@pytest.mark.parametrize("name", topology.NAMES)
@pytest.mark.parametrize("size", [4, 8])
def test_survivors_stay_connected(name, size):
    """Over a period; the names include all graphs that vary in time."""
    graph = topology.by_name(name, size)
    for left in range(1, size + 1):
        for kept in combinations(range(size), left):
            whole = sum(among(graph, None, kept))
            assert (np.linalg.matrix_power(whole, size) > 0).all(), kept
