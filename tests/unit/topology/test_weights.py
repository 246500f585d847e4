"""Weights: rows are receivers, and what sums to 1 does."""

import numpy as np
import pytest

import pycollectives as pc
from pycollectives import topology

SIZES = [*range(1, 18), 64]


def sizes_of(name):
    return [
        size
        for size in SIZES
        if not (name == "hypercube" and size & (size - 1)) and not (name == "double-ring" and size % 2)
    ]


CASES = [(name, size) for name in topology.NAMES[:9] for size in sizes_of(name)]


@pytest.mark.parametrize(("name", "size"), CASES)
def test_sums(name, size):
    graph = topology.by_name(name, size)
    uniform, push_sum = graph.matrix("uniform"), graph.matrix("push-sum")
    np.testing.assert_allclose(uniform.sum(axis=1), 1)
    np.testing.assert_allclose(push_sum.sum(axis=0), 1)
    graph.check_row_stochastic("uniform")
    graph.check_column_stochastic("push-sum")
    if graph.is_symmetric:
        metropolis = graph.matrix("metropolis")
        np.testing.assert_allclose(metropolis.sum(axis=0), 1)
        np.testing.assert_array_equal(metropolis, metropolis.T)
        assert metropolis.min() >= 0
        graph.check_doubly_stochastic("metropolis")
    for matrix in (uniform, push_sum):
        assert matrix.dtype == np.float64
        for rank in range(size):
            assert tuple(j for j in np.flatnonzero(matrix[rank]) if j != rank) == graph.in_neighbors(rank)
            assert tuple(i for i in np.flatnonzero(matrix[:, rank]) if i != rank) == graph.out_neighbors(rank)


def test_a_row_is_a_receiver():
    line = pc.topology.Topology(3, [(0, 1), (0, 2), (1, 2)])
    assert line.matrix().tolist() == [[1, 0, 0], [1 / 2, 1 / 2, 0], [1 / 3, 1 / 3, 1 / 3]]
    assert line.matrix("push-sum").tolist() == [[1 / 3, 0, 0], [1 / 3, 1 / 2, 0], [1 / 3, 1 / 2, 1]]


def test_metropolis_hastings():
    np.testing.assert_allclose(
        topology.star(4).matrix("metropolis"),
        [[1 / 4, 1 / 4, 1 / 4, 1 / 4], [1 / 4, 3 / 4, 0, 0], [1 / 4, 0, 3 / 4, 0], [1 / 4, 0, 0, 3 / 4]],
    )


@pytest.mark.parametrize("kind", ["uniform", "metropolis", "push-sum"])
@pytest.mark.parametrize("name", ["ring", "star", "bipartite-exponential", "exponential"])
def test_what_a_rank_needs_is_its_row_and_its_column(name, kind):
    graph = topology.by_name(name, 7)
    if name == "exponential" and kind == "metropolis":
        with pytest.raises(ValueError, match="expected a symmetric graph for weights 'metropolis', found an edge"):
            graph.weights_of(0, kind)
        return
    matrix = graph.matrix(kind)
    for rank in range(7):
        own, weights = graph.weights_of(rank, kind)
        kept, shares = graph.shares_of(rank, kind)
        assert own == kept == matrix[rank, rank]
        assert weights == {peer: matrix[rank, peer] for peer in graph.in_neighbors(rank)}
        assert shares == {peer: matrix[peer, rank] for peer in graph.out_neighbors(rank)}


def test_what_a_rank_needs_takes_no_matrix():
    """Of 100 000 ranks, which would take 80 GB."""
    ring = topology.ring(100_000)
    assert ring.weights_of(0, "metropolis") == (pytest.approx(1 / 3), {1: 1 / 3, 99_999: 1 / 3})
    ring.check_doubly_stochastic("uniform")
    ring.check_connected()
    assert ring.is_bipartite
    assert ring.distance(0, 99_990) == 10


def test_own_weights_are_the_default_of_a_graph_that_has_them():
    weights = [[0.9, 0.1, 0.0], [0.0, 0.5, 0.5], [0.25, 0.25, 0.5]]
    graph = topology.from_matrix(weights)
    assert graph.default_weights == "given"
    assert graph.matrix().tolist() == graph.matrix("given").tolist() == weights
    assert graph.weights_of(2) == (0.5, {0: 0.25, 1: 0.25})
    assert graph.shares_of(2) == (0.5, {1: 0.5})
    assert graph.matrix("uniform")[0].tolist() == [0.5, 0.5, 0]
    graph.matrix()[0, 0] = 7
    assert graph.matrix().tolist() == weights


def test_the_matrix_is_copied():
    weights = np.full((2, 2), 0.5)
    graph = topology.from_matrix(weights)
    weights[:] = 7
    assert graph.weights_of(0) == (0.5, {1: 0.5})


@pytest.mark.parametrize(
    ("graph", "check", "message"),
    [
        (
            topology.star(4),
            lambda graph: graph.check_doubly_stochastic("uniform"),
            "star of 4 ranks: expected uniform weights whose rows and columns sum to 1, found column 0 with the sum "
            "1.75",
        ),
        (
            topology.star(3),
            lambda graph: graph.check_doubly_stochastic("push-sum"),
            "star of 3 ranks: expected push-sum weights whose rows and columns sum to 1, found row 0 with the sum "
            "1.33333",
        ),
        (
            topology.star(4),
            lambda graph: graph.check_column_stochastic("uniform"),
            "star of 4 ranks: expected uniform weights whose columns sum to 1, found column 0 with the sum 1.75",
        ),
        (
            topology.from_matrix([[0.5, 0.1], [0.5, 0.9]], name="mine"),
            lambda graph: graph.check_row_stochastic(),
            "mine of 2 ranks: expected given weights whose rows sum to 1, found row 0 with the sum 0.6",
        ),
        (
            topology.exponential(8),
            lambda graph: graph.check_symmetric(),
            "exponential of 8 ranks: expected a symmetric graph, found an edge from rank 0 to rank 1 and none back",
        ),
        (
            topology.exponential(8),
            lambda graph: graph.matrix("metropolis"),
            "exponential of 8 ranks: expected a symmetric graph for weights 'metropolis', found an edge from rank 0 to "
            "rank 1 and none back; weights 'uniform' take any graph",
        ),
        (
            topology.ring(5),
            lambda graph: graph.check_bipartite(),
            "ring of 5 ranks: expected a bipartite graph, found a cycle of odd length through the edge of ranks 1 and "
            "2",
        ),
        (
            pc.topology.Topology(3, [(0, 1), (1, 0)]),
            lambda graph: graph.check_connected(),
            "graph of 3 ranks: expected a connected graph, found no path from rank 0 to rank 2",
        ),
        (
            pc.topology.Topology(3, [(0, 1), (1, 2)]),
            lambda graph: graph.check_connected(),
            "graph of 3 ranks: expected a connected graph, found no path from rank 1 to rank 0",
        ),
        (
            topology.ring(3),
            lambda graph: graph.matrix("given"),
            "ring of 3 ranks: expected weights 'uniform' or 'metropolis' or 'push-sum', got 'given', but the "
            "graph has no weights of its own",
        ),
        (
            topology.ring(3),
            lambda graph: graph.matrix("equal"),
            "weights: expected 'uniform' or 'metropolis' or 'push-sum' or 'given', got 'equal'",
        ),
    ],
)
def test_what_a_check_says(graph, check, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011 - all of the text
        check(graph)
    assert str(error.value) == message


def test_push_sum_reaches_the_mean_on_a_directed_graph():
    """De-biased by the weights that travel with the values (SGP, section 2); plain averaging ends elsewhere."""
    graph = pc.topology.Topology(4, [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)])
    graph.check_connected()
    step = np.linalg.matrix_power(graph.matrix("push-sum"), 200)
    values = np.array([1.0, 2.0, 3.0, 10.0])
    np.testing.assert_allclose(step @ values / (step @ np.ones(4)), 4)
    assert abs((np.linalg.matrix_power(graph.matrix("uniform"), 200) @ values)[0] - 4) > 0.1
