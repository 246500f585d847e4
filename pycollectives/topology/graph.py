"""A topology: the graph along which ranks send, and the weights with which they average."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from ..support.validation import checked_choice, checked_integer, checked_name, checked_rank
from . import drawing, measures
from .weights import KINDS, dense, row, sums

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from .weights import Matrix

TOLERANCE = 1e-9
"""Tolerance of sums of weights that must be 1."""


class Topology:
    """An immutable graph of ranks: directed, weighted, and with an edge from each rank to itself.

    If there is an edge from j to i, rank i takes rank j's value. Every rank has an implicit edge to itself, which is
    never listed. Make a topology with a function of `pycollectives.topology`, such as `ring` or `from_matrix`, or from
    its edges.

    Parameters
    ----------
    size
        The number of ranks.
    edges
        Pairs (source, target) of different ranks; a repeated pair counts once. For an undirected edge, give both
        directions.
    name
        The name in messages.

    Raises
    ------
    ValueError, TypeError
        An edge does not join two different ranks.

    >>> import pycollectives as pc
    >>> line = pc.topology.Topology(3, [(0, 1), (1, 0), (1, 2), (2, 1)], name="line")
    >>> line
    <Topology line of 3 ranks, 2 edges>
    >>> line.in_neighbors(1)
    (0, 2)
    >>> line.matrix("metropolis").round(2)
    array([[0.67, 0.33, 0.  ],
           [0.33, 0.33, 0.33],
           [0.  , 0.33, 0.67]])
    """

    __slots__ = ("_given", "_in", "_name", "_out")

    def __init__(self, size: int, edges: Iterable[tuple[int, int]], *, name: str = "graph") -> None:
        size = checked_integer("size", size, at_least=1)
        outgoing: list[set[int]] = [set() for _ in range(size)]
        incoming: list[set[int]] = [set() for _ in range(size)]
        for edge in edges:
            try:
                source, target = edge
            except (TypeError, ValueError):
                raise TypeError(f"edges: expected pairs of ranks, got {edge!r}") from None
            source, target = checked_rank("source", source, size), checked_rank("target", target, size)
            if source == target:
                raise ValueError(f"edges: expected edges between different ranks, got ({source}, {target})")
            outgoing[source].add(target)
            incoming[target].add(source)
        self._name = checked_name(name)
        self._out = tuple(tuple(sorted(peers)) for peers in outgoing)
        self._in = self._out if incoming == outgoing else tuple(tuple(sorted(peers)) for peers in incoming)
        self._given: Matrix | None = None

    @classmethod
    def _of_weights(cls, matrix: Matrix, name: str) -> Topology:
        """Return the topology of a checked matrix, which is not copied; its nonzero entries are the edges."""
        edges = ((int(j), int(i)) for i, j in np.argwhere(matrix) if i != j)
        topology = cls(len(matrix), edges, name=name)
        topology._given = matrix
        return topology

    # --- The graph ----------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name in messages, such as `"ring-based"`."""
        return self._name

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self._in)

    @property
    def period(self) -> int:
        """The number of steps after which the topology repeats: 1, or more for a `TimeVarying`."""
        return 1

    def at(self, step: int) -> Topology:
        """Return the topology of a `step`: always this one, unlike `TimeVarying.at`."""
        checked_integer("step", step, at_least=0)
        return self

    def union(self) -> Topology:
        """Return this graph, which has the edges of all steps."""
        return self

    def in_neighbors(self, rank: int) -> tuple[int, ...]:
        """Return the ranks whose values `rank` takes, ascending, without `rank`."""
        return self._in[checked_rank("rank", rank, self.size)]

    def out_neighbors(self, rank: int) -> tuple[int, ...]:
        """Return the ranks that take the value of `rank`, ascending, without `rank`."""
        return self._out[checked_rank("rank", rank, self.size)]

    @property
    def edge_count(self) -> int:
        """Number of edges between different ranks; in a symmetric graph, both directions together count once."""
        directed = sum(map(len, self._out))
        return directed // 2 if self.is_symmetric else directed

    @property
    def signature(self) -> str:
        """The text that ranks compare: size, number of edges, and a digest of edges and own weights, but no name."""
        digest = hashlib.sha256(repr((self.size, self._in)).encode())
        if self._given is not None:
            digest.update(self._given.astype("<f8").tobytes())
        return f"{in_words(self.size)}, {self._edges_in_words()}, digest {digest.hexdigest()[:16]}"

    def __eq__(self, other: object) -> bool:
        """Whether size, edges and own weights are the same; the name does not count."""
        if not isinstance(other, Topology):
            return NotImplemented
        if self._in != other._in or (self._given is None) != (other._given is None):
            return False
        return self._given is None or np.array_equal(self._given, other._given)  # type: ignore[arg-type]

    def __hash__(self) -> int:
        return hash(self._in)

    def __repr__(self) -> str:
        return f"<Topology {self._title}, {self._edges_in_words()}>"

    def _edges_in_words(self) -> str:
        count = self.edge_count
        return f"{count} {'' if self.is_symmetric else 'directed '}{'edge' if count == 1 else 'edges'}"

    # --- Weights ------------------------------------------------------------------------------------------------------

    @property
    def default_weights(self) -> str:
        """The default kind of weights: `"given"` if the graph has its own weights, otherwise `"uniform"`."""
        return "uniform" if self._given is None else "given"

    def matrix(self, weights: str | None = None) -> npt.NDArray[Any]:
        """Return the weights of all ranks, float64 of shape (P, P).

        w[i, j] is the weight with which rank i takes rank j's value: a row is a receiver, and a step is x <- W x.

        Parameters
        ----------
        weights
            The kind of weights. Default: "given" if the graph has its own weights, otherwise "uniform".
            `"uniform"`: 1 / (in-neighbors of i + 1) for each in-neighbor and the rank itself; rows sum to 1.
            `"metropolis"` (Metropolis-Hastings): 1 / (1 + max(degree of i, degree of j)) for each neighbor, and the
            rest for the rank itself; rows and columns sum to 1; only for symmetric graphs.
            `"push-sum"`: 1 / (out-neighbors of j + 1), the share that sender j gives to each out-neighbor and keeps;
            columns sum to 1.
            `"given"`: the weights given to `from_matrix` or `from_networkx`.

        Returns
        -------
        numpy.ndarray
            float64 of shape (P, P).

        Raises
        ------
        ValueError
            The kind is unknown, is "metropolis" for an asymmetric graph, or is "given" for a graph without weights.
        """
        return dense(self._kind(weights), self._in, self._out, self._given)

    def weights_of(self, rank: int, weights: str | None = None) -> tuple[float, dict[int, float]]:
        """Return only a row of `matrix`: a rank's own weight and the weight of each in-neighbor.

        Parameters
        ----------
        rank
            The row, 0 <= rank < size.
        weights
            The kind of weights, as for `matrix`.

        >>> import pycollectives as pc
        >>> pc.topology.star(4).weights_of(1, "push-sum")
        (0.5, {0: 0.25})
        """
        kind = self._kind(weights)
        return row(kind, checked_rank("rank", rank, self.size), self._in, self._out, self._given)

    def shares_of(self, rank: int, weights: str | None = None) -> tuple[float, dict[int, float]]:
        """Return only a column of `matrix`: the share that a rank keeps, and each out-neighbor's share.

        In push-sum, a sender multiplies its value by these shares before it sends.

        Parameters
        ----------
        rank
            The column, 0 <= rank < size.
        weights
            The kind of weights, as for `matrix`.

        >>> import pycollectives as pc
        >>> pc.topology.star(4).shares_of(0, "push-sum")
        (0.25, {1: 0.25, 2: 0.25, 3: 0.25})
        """
        kind = self._kind(weights)
        kept, _ = self.weights_of(rank, kind)
        return kept, {peer: self.weights_of(peer, kind)[1][rank] for peer in self._out[rank]}

    def _kind(self, weights: str | None) -> str:
        kind = checked_choice("weights", self.default_weights if weights is None else weights, KINDS)
        if kind == "given" and self._given is None:
            raise ValueError(
                f"{self._title}: expected weights {' or '.join(map(repr, KINDS[:-1]))}, got 'given', but the graph has "
                "no weights of its own"
            )
        if kind == "metropolis":
            self._check_symmetric(" for weights 'metropolis'", "; weights 'uniform' take any graph")
        return kind

    # --- Measures -----------------------------------------------------------------------------------------------------

    def distance(self, source: int, target: int) -> int:
        """Return the least number of edges from rank `source` to `target`; `ValueError` if there is no path."""
        source, target = checked_rank("source", source, self.size), checked_rank("target", target, self.size)
        hops = measures.distances(source, self._out)[target]
        if hops < 0:
            raise ValueError(f"{self._title}: there is no path from rank {source} to rank {target}")
        return hops

    @property
    def diameter(self) -> int:
        """The largest distance between two ranks; `ValueError` if the graph is not connected."""
        self.check_connected()
        return max(max(measures.distances(rank, self._out)) for rank in range(self.size))

    def spectral_gap(self, weights: str | None = None) -> float:
        """Return the spectral gap, the mixing speed of averages: the difference of W's two largest eigenvalue moduli.

        The gap is 0 if some values never mix, and 1 if all ranks have the mean after one step (Hop, section 7; Lian et
        al. 2017).

        Parameters
        ----------
        weights
            The kind of weights, as for `matrix`.

        Returns
        -------
        float
            In [0, 1].
        """
        return measures.gap(self.matrix(weights))

    def chi(self, rate: float = 1.0) -> tuple[float, float]:
        """Return (chi1, chi2) of A2CiD2, from the rates of pairwise averages along the edges.

        Each rank begins exchanges at rate `rate` / 2, with one of its neighbors drawn uniformly. An exchange has two
        members. Therefore a rank takes part in `rate` pairwise averages per unit of time: every rank of a regular
        graph, and the mean over ranks of any graph. The edge {i, j} is used at rate lambda_ij = rate / 2 (1 / d_i + 1 /
        d_j), where d are the degrees. The Laplacian is Lambda = sum over edges of lambda_ij (e_i - e_j)(e_i - e_j)^T,
        which is rate (I - A / d) for a regular graph with the adjacency matrix A. The results are

        - chi1 = 1 / lambda_2(Lambda), the inverse of the smallest positive eigenvalue;
        - chi2 = 1/2 max over edges {i, j} of (e_i - e_j)^T Lambda^+ (e_i - e_j), half of the largest effective
          resistance of an edge.

        Both are inversely proportional to `rate`, and (0, 0) for one rank. Source: Nabli, Belilovsky and Oyallon,
        "A2CiD2", NeurIPS 2023 (arXiv 2306.08289), section 3; the authors' program uses the rate 1.

        Parameters
        ----------
        rate
            Pairwise averages of a rank per unit of time, > 0.

        Raises
        ------
        ValueError
            The graph is not symmetric or not connected, or `rate` is not positive.

        >>> import pycollectives as pc
        >>> tuple(round(value, 2) for value in pc.topology.ring(16).chi())
        (13.14, 0.94)
        """
        if not 0 < rate < float("inf"):
            raise ValueError(f"rate: expected a positive number of averages per unit of time, got {rate!r}")
        self.check_symmetric()
        self.check_connected()
        return measures.chi(self._in, rate)

    def rho(self) -> float:
        """Return rho of AD-PSGD, the largest share of the ranks' disagreement that remains after a pairwise average.

        A rank drawn uniformly averages with one of its neighbors, drawn uniformly. W is the matrix of that average, and
        rho is the second largest eigenvalue of E[W^T W], in [0, 1). AD-PSGD converges faster if rho is smaller. It
        equals 1 - 1 / (size chi1), with chi1 of `chi`. Source: Lian et al. 2018 (AD-PSGD), Assumption 1.

        Raises
        ------
        ValueError
            The graph is not symmetric or not connected.

        >>> import pycollectives as pc
        >>> [round(pc.topology.ring(size).rho(), 3) for size in (4, 8, 16)]
        [0.75, 0.963, 0.995]
        """
        chi1, _ = self.chi()
        return 1 - 1 / (self.size * chi1) if chi1 > 0 else 0.0

    @property
    def is_symmetric(self) -> bool:
        """Whether each edge goes in both directions."""
        return self._in is self._out

    @property
    def is_connected(self) -> bool:
        """Whether there is a path from each rank to every other along the direction of edges (strongly connected)."""
        return self._unreachable() is None

    def _unreachable(self) -> tuple[int, int] | None:
        """Return two ranks without a path from the first to the second; None if there are none."""
        for neighbors in (self._out, self._in):
            hops = measures.distances(0, neighbors)
            if -1 in hops:
                rank = hops.index(-1)
                return (0, rank) if neighbors is self._out else (rank, 0)
        return None

    @property
    def is_bipartite(self) -> bool:
        """Whether the ranks have two sides such that all edges join different sides, in any direction."""
        return measures.sides(self._in, self._out)[1] is None

    def coloring(self) -> tuple[int, ...]:
        """Return the side, 0 or 1, of each rank of a bipartite graph; `ValueError` for other graphs.

        The lowest rank of each connected part is on side 0.
        """
        side, edge = measures.sides(self._in, self._out)
        if edge is not None:
            raise ValueError(
                f"{self._title}: expected a bipartite graph, found a cycle of odd length through the edge of ranks "
                f"{edge[0]} and {edge[1]}"
            )
        return tuple(side)

    def sides(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the ranks of each side of a bipartite graph, ascending; `ValueError` for other graphs."""
        side = self.coloring()
        first, second = (tuple(rank for rank in range(self.size) if side[rank] == number) for number in (0, 1))
        return first, second

    def dot(self) -> str:
        """Return a drawing in Graphviz's language; pipe it into `dot -Tsvg`."""
        return drawing.dot(self, self._title)

    # --- Checks -------------------------------------------------------------------------------------------------------

    def check_connected(self) -> None:
        """Raise `ValueError` unless there is a path from each rank to every other."""
        if pair := self._unreachable():
            raise ValueError(
                f"{self._title}: expected a connected graph, found no path from rank {pair[0]} to rank {pair[1]}"
            )

    def check_symmetric(self) -> None:
        """Raise `ValueError` unless each edge goes in both directions."""
        self._check_symmetric()

    def _check_symmetric(self, purpose: str = "", hint: str = "") -> None:
        if self.is_symmetric:
            return
        for rank, peers in enumerate(self._out):
            if missing := set(peers).difference(self._in[rank]):
                raise ValueError(
                    f"{self._title}: expected a symmetric graph{purpose}, found an edge from rank {rank} to rank "
                    f"{min(missing)} and none back{hint}"
                )

    def check_bipartite(self) -> None:
        """Raise `ValueError` unless the ranks have two sides such that all edges join different sides."""
        self.coloring()

    def check_doubly_stochastic(self, weights: str | None = None) -> None:
        """Raise `ValueError` unless all rows and columns of `weights` sum to 1: averaging keeps the mean."""
        rows, columns = self._sums(weights)
        self._check_sums(weights, "rows and columns", "row", rows)
        self._check_sums(weights, "rows and columns", "column", columns)

    def check_row_stochastic(self, weights: str | None = None) -> None:
        """Raise `ValueError` unless all rows of `weights` sum to 1: each rank takes a weighted mean."""
        self._check_sums(weights, "rows", "row", self._sums(weights)[0])

    def check_column_stochastic(self, weights: str | None = None) -> None:
        """Raise `ValueError` unless all columns of `weights` sum to 1: averaging keeps the sum, as push-sum needs."""
        self._check_sums(weights, "columns", "column", self._sums(weights)[1])

    def _sums(self, weights: str | None) -> tuple[Matrix, Matrix]:
        return sums(self._kind(weights), self._in, self._out, self._given)

    def _check_sums(self, weights: str | None, expected: str, what: str, found: Matrix) -> None:
        rank = int(np.argmax(np.abs(found - 1)))
        if abs(found[rank] - 1) > TOLERANCE:
            raise ValueError(
                f"{self._title}: expected {self._kind(weights)} weights whose {expected} sum to 1, found {what} {rank} "
                f"with the sum {found[rank]:.6g}"
            )

    @property
    def _title(self) -> str:
        return f"{self._name} of {in_words(self.size)}"


def in_words(size: int) -> str:
    """Return `"1 rank"` or `"2 ranks"`."""
    return "1 rank" if size == 1 else f"{size} ranks"
