"""Measures: against closed forms, the papers' numbers and NetworkX."""

import math

import networkx
import numpy as np
import pytest

import pycollectives as pc
from pycollectives import topology

SIZES = [*range(1, 18), 64]


def as_networkx(graph):
    other = networkx.DiGraph()
    other.add_nodes_from(range(graph.size))
    other.add_edges_from((rank, peer) for rank in range(graph.size) for peer in graph.out_neighbors(rank))
    return other


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "name", ["ring", "ring-based", "exponential", "bipartite-exponential", "torus", "star", "complete"]
)
def test_distances_and_sides(name, size):
    graph = topology.by_name(name, size)
    other = as_networkx(graph)
    hops = dict(networkx.all_pairs_shortest_path_length(other))
    assert graph.diameter == networkx.diameter(other)
    for source in range(size):
        for target in range(size):
            assert graph.distance(source, target) == hops[source][target]
    assert graph.is_bipartite == networkx.is_bipartite(other)
    if graph.is_bipartite:
        colors = graph.coloring()
        assert colors[0] == 0
        assert all(colors[rank] != colors[peer] for rank in range(size) for peer in graph.out_neighbors(rank))
        assert graph.sides() == tuple(tuple(r for r in range(size) if colors[r] == side) for side in (0, 1))


def test_random_graphs():
    seed = 11
    print(f"seed {seed}")
    found = {"connected": 0, "bipartite": 0}
    for number in range(200):
        other = networkx.gnp_random_graph(2 + number % 7, 0.25, seed=seed + number, directed=number % 2 == 1)
        graph = topology.from_networkx(other)
        connected = networkx.is_strongly_connected(other) if other.is_directed() else networkx.is_connected(other)
        assert graph.is_connected == connected
        assert graph.is_bipartite == networkx.is_bipartite(other)
        assert graph.is_symmetric == all(other.has_edge(b, a) for a, b in other.edges)
        found["connected"] += connected
        found["bipartite"] += graph.is_bipartite
        if connected:
            assert graph.diameter == networkx.diameter(other)
    assert min(found.values()) > 20
    assert max(found.values()) < 180


def test_a_rank_that_is_not_reached():
    line = pc.topology.Topology(3, [(0, 1), (1, 2)], name="line")
    assert line.distance(0, 2) == 2
    with pytest.raises(ValueError, match="line of 3 ranks: there is no path from rank 2 to rank 0"):
        line.distance(2, 0)
    with pytest.raises(ValueError, match="expected a connected graph, found no path from rank 1 to rank 0"):
        _ = line.diameter


@pytest.mark.parametrize("size", SIZES)
def test_gap_of_the_complete_graph(size):
    for kind in ("uniform", "metropolis", "push-sum"):
        assert topology.complete(size).spectral_gap(kind) == pytest.approx(1)


@pytest.mark.parametrize("size", SIZES[2:])
def test_gap_of_a_ring(size):
    """Eigenvalues (1 + 2 cos(2 pi k / P)) / 3."""
    moduli = sorted(abs(1 + 2 * math.cos(2 * math.pi * k / size)) / 3 for k in range(1, size))
    assert topology.ring(size).spectral_gap() == pytest.approx(1 - moduli[-1])


@pytest.mark.parametrize("dimensions", range(1, 8))
def test_gap_of_a_hypercube(dimensions):
    """Eigenvalues 1 - 2 k / (n + 1); the least one is the largest in modulus but one, with the second."""
    assert topology.hypercube(2**dimensions).spectral_gap() == pytest.approx(
        1 if dimensions == 1 else 2 / (dimensions + 1)
    )


@pytest.mark.parametrize("size", [2, 4, 6, 8, 10, 12, 14, 16, 64])
def test_gap_of_the_exponential_graph(size):
    """2 / (1 + ceil(log2 P)) for even P (Ying et al. 2021, "Exponential graph is provably efficient")."""
    assert topology.exponential(size).spectral_gap() == pytest.approx(2 / (1 + math.ceil(math.log2(size))))


def test_the_ring_based_graph_of_8_has_the_second_eigenvalue_of_hop():
    """Hop says 0.6667 (section 7.3.6), of weights without self-loops: 1 - lambda_2 of the adjacency matrix / 3."""
    graph = topology.ring_based(8)
    adjacency = graph.matrix() - np.diag(np.diag(graph.matrix()))
    values = np.sort(np.linalg.eigvalsh(adjacency * 4 / 3))
    assert 1 - values[-2] == pytest.approx(0.6667, abs=1e-4)
    assert graph.spectral_gap() == pytest.approx(0.5)


def test_the_gap_says_how_fast_the_ranks_meet():
    graph = topology.double_ring(16)
    values = np.random.default_rng(3).normal(size=16)
    spread = [np.linalg.norm(np.linalg.matrix_power(graph.matrix(), k) @ values - values.mean()) for k in (40, 41)]
    assert spread[1] / spread[0] == pytest.approx(1 - graph.spectral_gap(), rel=1e-3)
    assert pc.topology.Topology(4, [(0, 1), (1, 0)]).spectral_gap() == pytest.approx(0)
    assert topology.from_matrix([[0, 1], [1, 0]]).spectral_gap() == pytest.approx(0)  # the eigenvalues are 1 and -1


@pytest.mark.parametrize("size", SIZES)
def test_chi_of_the_complete_graph(size):
    """I - A / (P - 1) has eigenvalues 0 and P / (P - 1)."""
    assert topology.complete(size).chi() == pytest.approx(((size - 1) / size, (size - 1) / size))


@pytest.mark.parametrize("size", SIZES[2:])
def test_chi_of_a_ring(size):
    """An edge of conductance 1/2 is parallel to P - 1 such edges in series: resistance 2 (P - 1) / P."""
    expected = 1 / (1 - math.cos(2 * math.pi / size)), (size - 1) / size
    assert topology.ring(size).chi() == pytest.approx(expected)


@pytest.mark.parametrize("size", SIZES[1:])
def test_chi_of_a_star(size):
    """Each edge has the rate (1 + 1 / (P - 1)) / 2, no edge is parallel to it, and lambda_2 is that rate."""
    rate = size / (size - 1) / 2
    assert topology.star(size).chi() == pytest.approx((1 / rate if size > 2 else 1 / 2 / rate, 1 / rate / 2))


def test_chi_is_what_the_paper_has_for_16_ranks():
    """A2CiD2's table of graphs: complete (1, 1), exponential (2, 1), ring (13, 1), rounded."""
    exponential = topology.from_networkx(as_networkx(topology.exponential(16)).to_undirected())
    found = [graph.chi() for graph in (topology.complete(16), exponential, topology.ring(16))]
    assert [tuple(map(round, values)) for values in found] == [(1, 1), (2, 1), (13, 1)]


@pytest.mark.parametrize("graph", [topology.ring(2), topology.ring(8), topology.star(5), topology.torus(12)], ids=str)
def test_rho_by_the_definition(graph):
    """E[W^T W] as a sum over the ranks that begin and the neighbors that they draw."""
    expected = np.zeros((graph.size, graph.size))
    for rank in range(graph.size):
        for peer in graph.out_neighbors(rank):
            average = np.eye(graph.size)
            average[np.ix_([rank, peer], [rank, peer])] = 0.5
            expected += average.T @ average / graph.size / len(graph.out_neighbors(rank))
    assert graph.rho() == pytest.approx(np.sort(np.abs(np.linalg.eigvalsh(expected)))[-2], abs=1e-12)


def test_rho_of_one_rank_and_of_a_directed_graph():
    assert topology.complete(1).rho() == 0
    with pytest.raises(ValueError, match="symmetric"):
        topology.exponential(8).rho()


def test_chi_is_inverse_to_the_rate():
    graph = topology.torus(12)
    assert graph.chi(rate=4) == pytest.approx(tuple(value / 4 for value in graph.chi()))
    with pytest.raises(ValueError, match="rate: expected a positive number of averages per unit of time, got 0"):
        graph.chi(rate=0)


def test_chi_by_the_definition():
    """The pseudo-inverse and the sums over edges, of an irregular graph."""
    seed = 5
    print(f"seed {seed}")
    other = networkx.connected_watts_strogatz_graph(12, 4, 0.5, seed=seed)
    laplacian = np.zeros((12, 12))
    for i, j in other.edges:
        difference = np.eye(12)[i] - np.eye(12)[j]
        laplacian += (1 / other.degree[i] + 1 / other.degree[j]) / 2 * np.outer(difference, difference)
    assert np.trace(laplacian) == pytest.approx(12)  # each rank takes part in one average, in the mean
    inverse = np.linalg.pinv(laplacian)
    resistances = [inverse[i, i] + inverse[j, j] - 2 * inverse[i, j] for i, j in other.edges]
    chi1, chi2 = topology.from_networkx(other).chi()
    assert chi1 == pytest.approx(1 / np.linalg.eigvalsh(laplacian)[1])
    assert chi2 == pytest.approx(max(resistances) / 2)
    assert chi2 <= chi1


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (topology.exponential(5), "expected a symmetric graph"),
        (pc.topology.Topology(3, [(0, 1), (1, 0)]), "expected a connected graph, found no path from rank 0 to rank 2"),
    ],
)
def test_what_has_no_chi(graph, message):
    with pytest.raises(ValueError, match=message):
        graph.chi()
