"""Topologies from matrices and NetworkX's graphs."""

import subprocess
import sys

import networkx
import numpy as np
import pytest

from pycollectives import topology


def test_graphs_of_networkx():
    graph = topology.from_networkx(networkx.cycle_graph(5), name="mine")
    assert graph == topology.ring(5)
    assert graph.name == "mine"
    assert topology.from_networkx(networkx.hypercube_graph(3)).diameter == 3  # whose nodes are tuples
    directed = topology.from_networkx(networkx.DiGraph([(0, 1), (1, 2), (2, 0), (1, 1)]))
    assert directed.in_neighbors(1) == (0,)
    assert directed.out_neighbors(1) == (2,)


def test_integers_are_ranks_in_whatever_order():
    graph = networkx.Graph()
    graph.add_nodes_from([2, 0, 1])
    graph.add_edge(2, 0)
    assert topology.from_networkx(graph).in_neighbors(0) == (2,)


def test_other_nodes_become_ranks_in_their_order():
    graph = networkx.DiGraph([("b", "a"), ("a", "c")])
    assert topology.from_networkx(graph).out_neighbors(0) == (1,)
    assert topology.from_networkx(graph).out_neighbors(1) == (2,)


def test_weights_of_networkx():
    graph = networkx.DiGraph()
    graph.add_edge(0, 1, weight=0.25)
    graph.add_edge(1, 0, weight=0.5)
    graph.add_edge(1, 1, weight=0.75)
    found = topology.from_networkx(graph, weight="weight")
    assert found.matrix().tolist() == [[0.5, 0.5], [0.25, 0.75]]
    assert topology.from_networkx(graph).default_weights == "uniform"


def test_weights_of_an_undirected_graph():
    graph = networkx.path_graph(3)
    networkx.set_edge_attributes(graph, 0.25, "share")
    found = topology.from_networkx(graph, weight="share")
    assert found.matrix().tolist() == [[0.75, 0.25, 0], [0.25, 0.5, 0.25], [0, 0.25, 0.75]]
    found.check_doubly_stochastic()


def test_there_and_back():
    for name in topology.NAMES[:9]:
        graph = topology.by_name(name, 16)
        other = networkx.DiGraph()
        other.add_nodes_from(range(16))
        other.add_edges_from((rank, peer) for rank in range(16) for peer in graph.out_neighbors(rank))
        assert topology.from_networkx(other) == graph


@pytest.mark.parametrize(
    ("graph", "options", "error", "message"),
    [
        ("ring", {}, TypeError, "expected a NetworkX graph, got 'ring'"),
        (networkx.MultiGraph([(0, 1)]), {}, ValueError, "without parallel edges, got a multigraph"),
        (networkx.Graph(), {}, ValueError, "size: expected at least 1, got 0"),
        (
            networkx.path_graph(2),
            {"weight": "weight"},
            ValueError,
            r"graph: expected 'weight' on each edge, found none on \(0, 1\)",
        ),
        (
            networkx.DiGraph([(0, 1, {"weight": 1.5}), (1, 0, {"weight": 0.5})]),
            {"weight": "weight"},
            ValueError,
            "graph: expected weights >= 0, found -0.5 in row 1, column 1",
        ),
    ],
)
def test_what_is_no_graph(graph, options, error, message):
    with pytest.raises(error, match=message):
        topology.from_networkx(graph, **options)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ([[1.0, 0.0]], r"matrix: expected a matrix of shape \(P, P\), got shape \(1, 2\)"),
        ([1.0], r"got shape \(1,\)"),
        (np.empty((0, 0)), r"got shape \(0, 0\)"),
        ([[1.5, -0.5], [0.0, 1.0]], "matrix: expected weights >= 0, found -0.5 in row 0, column 1"),
        ([[float("nan"), 1.0], [0.0, 1.0]], "matrix: expected weights >= 0, found nan in row 0, column 0"),
        (
            [[0, 1, 1], [1, 0, 1], [1, 1, 0]],
            "matrix: expected rows or columns that sum to 1, found row 0 with the sum 2 and column 0 with the sum 2",
        ),
    ],
)
def test_what_is_no_matrix_of_weights(matrix, message):
    with pytest.raises(ValueError, match=message):
        topology.from_matrix(matrix)


def test_rows_or_columns_will_do():
    assert topology.from_matrix([[0.5, 0.5], [0.0, 1.0]]).in_neighbors(0) == (1,)
    assert topology.from_matrix([[0.5, 0.0], [0.5, 1.0]]).in_neighbors(1) == (0,)


def test_all_but_its_own_graphs_work_without_networkx():
    program = (
        "import sys; sys.modules['networkx'] = None\n"
        "from pycollectives import topology\n"
        "for name in topology.NAMES:\n"
        "    graph = topology.by_name(name, 8)\n"
        "    graph.check_connected(); graph.matrix('push-sum'); graph.is_bipartite; graph.dot(); graph.signature\n"
        "topology.ring(8).chi(), topology.ring(8).diameter\n"
        "try:\n"
        "    topology.from_networkx(None)\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "from_networkx needs NetworkX: pip install 'pycollectives[topology]', or in a checkout: "
        "pip install '.[topology]'\n"
    )


def test_importing_the_package_does_not_load_networkx():
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, pycollectives as pc; pc.topology.ring(4); print('networkx' in sys.modules)",
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("False\n", "")
