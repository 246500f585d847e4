"""Topologies from matrices and from NetworkX graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..support.extras import how_to_install
from .graph import TOLERANCE, Topology

if TYPE_CHECKING:
    import numpy.typing as npt


def from_matrix(matrix: npt.ArrayLike, *, name: str = "matrix") -> Topology:
    """Return the topology that a matrix of weights defines.

    The topology's default kind of weights is `"given"`: the weights in this matrix.

    Parameters
    ----------
    matrix
        Weights of shape (P, P), which are copied: w[i, j] is the weight with which rank i takes rank j's value, and
        w[i, i] the weight of rank i's own value. If w[i, j] is not 0, the graph has an edge from j to i.
    name
        The name in messages.

    Raises
    ------
    ValueError
        The matrix is not square, a weight is negative or not finite, or neither all rows nor all columns sum to 1.

    >>> from_matrix([[0.5, 0.5], [0.25, 0.75]]).weights_of(1)
    (0.75, {0: 0.25})
    """
    weights = np.array(matrix, dtype=np.float64)
    if weights.ndim != 2 or weights.shape[0] != weights.shape[1] or not len(weights):
        raise ValueError(f"{name}: expected a matrix of shape (P, P), got shape {weights.shape}")
    wrong = np.argwhere(~(np.isfinite(weights) & (weights >= 0)))
    if len(wrong):
        i, j = map(int, wrong[0])
        raise ValueError(f"{name}: expected weights >= 0, found {weights[i, j]:g} in row {i}, column {j}")
    sums = weights.sum(axis=1), weights.sum(axis=0)
    worst = [int(np.argmax(np.abs(values - 1))) for values in sums]
    if all(abs(values[rank] - 1) > TOLERANCE for values, rank in zip(sums, worst, strict=True)):
        raise ValueError(
            f"{name}: expected rows or columns that sum to 1, found row {worst[0]} with the sum "
            f"{sums[0][worst[0]]:.6g} and column {worst[1]} with the sum {sums[1][worst[1]]:.6g}"
        )
    return Topology._of_weights(weights, name)


def from_networkx(graph: Any, *, weight: str | None = None, name: str | None = None) -> Topology:
    """Return the topology of a NetworkX graph; needs the extra `topology`.

    Parameters
    ----------
    graph
        A `networkx.Graph`, whose edges go in both directions, or a `networkx.DiGraph`, in which rank i takes the value
        of rank j if there is an edge (j, i). If the nodes are 0 to P - 1, they are the ranks; other nodes become ranks
        in the graph's order. Edges of nodes to themselves are ignored: each rank has such an edge.
    weight
        Name of the edge attribute with the weights, which become the kind `"given"`, as in `from_matrix`. A rank's own
        weight is the attribute of its edge to itself, or otherwise 1 minus the weights of its in-edges. If `weight` is
        None, the topology has no weights of its own.
    name
        The name in messages. Default: the name of `graph`, if it has one.

    Raises
    ------
    ImportError
        NetworkX is not installed.
    TypeError, ValueError
        The graph is not a NetworkX graph, has no nodes, has parallel edges, or an edge lacks the attribute.

    >>> import networkx
    >>> from_networkx(networkx.petersen_graph())
    <Topology Petersen Graph of 10 ranks, 15 edges>
    """
    try:
        import networkx
    except ImportError:
        raise ImportError(f"from_networkx needs NetworkX: {how_to_install('topology')}") from None
    if not isinstance(graph, networkx.Graph):
        raise TypeError(f"from_networkx: expected a NetworkX graph, got {graph!r}")
    if graph.is_multigraph():
        raise ValueError("from_networkx: expected a graph without parallel edges, got a multigraph")
    nodes = [*range(len(graph))] if set(graph) == {*range(len(graph))} else [*graph]
    ranks = {node: rank for rank, node in enumerate(nodes)}
    title = name or str(graph.name) or "graph"
    directed = graph.to_directed(as_view=True)
    if weight is None:
        edges = [(ranks[source], ranks[target]) for source, target in directed.edges if source != target]
        return Topology(len(nodes), edges, name=title)
    return from_matrix(_weights(directed, ranks, weight, title), name=title)


def _weights(graph: Any, ranks: dict[Any, int], weight: str, title: str) -> npt.NDArray[np.float64]:
    matrix = np.zeros((len(ranks), len(ranks)))
    for source, target, value in graph.edges(data=weight):
        if value is None:
            raise ValueError(f"{title}: expected {weight!r} on each edge, found none on ({source!r}, {target!r})")
        matrix[ranks[target], ranks[source]] = value
    for node, rank in ranks.items():
        if not graph.has_edge(node, node):
            matrix[rank, rank] = 1 - matrix[rank].sum()
    return matrix
