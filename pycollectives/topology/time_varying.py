"""Topologies that change from step to step, with a period."""

from __future__ import annotations

import functools
import hashlib
from typing import TYPE_CHECKING, Any

from ..support.validation import checked_integer, checked_name
from . import measures
from .families import powers_of_two
from .graph import Topology, in_words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt


class TimeVarying:
    """A topology that changes with the step: step s uses topology number s modulo `period` of a list.

    It has `size`, `period`, `at`, `signature` and the checks of `Topology`, so that it can replace a `Topology`.

    Parameters
    ----------
    topologies
        One topology for each step of the period, all of the same size.
    name
        The name in messages.

    >>> import pycollectives as pc
    >>> changing = pc.topology.one_peer_exponential(8)
    >>> changing
    <TimeVarying one-peer-exponential of 8 ranks, period 3>
    >>> [changing(step).out_neighbors(0) for step in range(4)]  # or changing.at(step)
    [(1,), (2,), (4,), (1,)]
    """

    __slots__ = ("_name", "_topologies")

    def __init__(self, topologies: Sequence[Topology], *, name: str = "time-varying") -> None:
        self._topologies = tuple(topologies)
        for topology in self._topologies:
            if not isinstance(topology, Topology):
                raise TypeError(f"topologies: expected Topology objects, got {topology!r}")
        if not self._topologies:
            raise ValueError("topologies: expected at least one, got none")
        sizes = {topology.size for topology in self._topologies}
        if len(sizes) > 1:
            raise ValueError(f"topologies: expected the same number of ranks in all, got {sorted(sizes)}")
        self._name = checked_name(name)

    @property
    def name(self) -> str:
        """The name in messages, such as `"one-peer-exponential"`."""
        return self._name

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self._topologies[0].size

    @property
    def period(self) -> int:
        """The number of steps after which the topology repeats."""
        return len(self._topologies)

    def at(self, step: int) -> Topology:
        """Return the topology of a `step`."""
        return self._topologies[checked_integer("step", step, at_least=0) % self.period]

    __call__ = at

    def union(self) -> Topology:
        """Return the graph with the edges of all steps."""
        edges = (
            (source, target)
            for topology in self._topologies
            for source in range(self.size)
            for target in topology.out_neighbors(source)
        )
        return Topology(self.size, edges, name=self._name)

    @property
    def signature(self) -> str:
        """The text that ranks compare: size, period, and a digest of all steps, without the name."""
        digest = hashlib.sha256("\n".join(topology.signature for topology in self._topologies).encode())
        return f"{in_words(self.size)}, period {self.period}, digest {digest.hexdigest()[:16]}"

    def __eq__(self, other: object) -> bool:
        """Whether the topologies of all steps are the same; the name does not count."""
        return self._topologies == other._topologies if isinstance(other, TimeVarying) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._topologies)

    def __repr__(self) -> str:
        return f"<TimeVarying {self._name} of {in_words(self.size)}, period {self.period}>"

    # --- Measures -----------------------------------------------------------------------------------------------------

    def matrix(self, weights: str | None = None) -> npt.NDArray[Any]:
        """Return the weights of one whole period, float64 of shape (P, P): the product W(period - 1) ... W(1) W(0).

        Parameters
        ----------
        weights
            The kind of weights, as for `Topology.matrix`; None for each step's default.
        """
        matrices = [topology.matrix(weights) for topology in self._topologies]
        return functools.reduce(lambda done, step: step @ done, matrices)

    def spectral_gap(self, weights: str | None = None) -> float:
        """Return the spectral gap of one whole period, in [0, 1]; 1 if all ranks have the mean at its end.

        Parameters
        ----------
        weights
            The kind of weights, as for `Topology.matrix`; None for each step's default.
        """
        return measures.gap(self.matrix(weights))

    @property
    def is_connected(self) -> bool:
        """Whether the graph with the edges of all steps is (strongly) connected."""
        return self.union().is_connected

    @property
    def is_symmetric(self) -> bool:
        """Whether the graph of each step is symmetric."""
        return all(topology.is_symmetric for topology in self._topologies)

    @property
    def is_bipartite(self) -> bool:
        """Whether the graph with the edges of all steps is bipartite."""
        return self.union().is_bipartite

    def dot(self) -> str:
        """Return one drawing for each step, in Graphviz's language."""
        return "".join(topology.dot() for topology in self._topologies)

    # --- Checks -------------------------------------------------------------------------------------------------------

    def check_connected(self) -> None:
        """Raise `ValueError` unless the graph with the edges of all steps is (strongly) connected."""
        self.union().check_connected()

    def check_bipartite(self) -> None:
        """Raise `ValueError` unless the graph with the edges of all steps is bipartite."""
        self.union().check_bipartite()

    def check_symmetric(self) -> None:
        """Raise `ValueError` unless the graph of each step is symmetric."""
        self._check_each(Topology.check_symmetric)

    def check_doubly_stochastic(self, weights: str | None = None) -> None:
        """Raise `ValueError` unless in each step all rows and columns of `weights` sum to 1."""
        self._check_each(lambda topology: topology.check_doubly_stochastic(weights))

    def check_row_stochastic(self, weights: str | None = None) -> None:
        """Raise `ValueError` unless in each step all rows of `weights` sum to 1."""
        self._check_each(lambda topology: topology.check_row_stochastic(weights))

    def check_column_stochastic(self, weights: str | None = None) -> None:
        """Raise `ValueError` unless in each step all columns of `weights` sum to 1."""
        self._check_each(lambda topology: topology.check_column_stochastic(weights))

    def _check_each(self, check: Callable[[Topology], None]) -> None:
        for topology in self._topologies:
            check(topology)


def one_peer_exponential(size: int) -> TimeVarying:
    """Return the one-peer exponential graph: in step s, rank r sends to r + 2^(s mod ceil(log2 size)), modulo the size.

    Each rank sends and receives one message per step. Uniform weights are doubly stochastic. If `size` is a power of
    two, all ranks have the exact mean after a period (Ying et al. 2021; the directed exponential graph of SGP).

    >>> round(one_peer_exponential(8).spectral_gap(), 9)
    1.0
    """
    size = checked_integer("one-peer-exponential: size", size, at_least=1)
    hops = powers_of_two(size) or [0]
    return _of_steps(
        "one-peer-exponential",
        size,
        [[(rank, (rank + hop) % size) for rank in range(size) if hop] for hop in hops],
    )


def alternating_exponential_ring(size: int, ranks_per_node: int = 1) -> TimeVarying:
    """Return the alternating exponential ring of Decent-DP: pairs of nodes exchange in alternate steps.

    A node has `ranks_per_node` ranks with consecutive numbers. In the steps 2 i and 2 i + 1, node a is paired with the
    node whose number differs in bit i. Even-numbered pairs average over both nodes in step 2 i + 1, odd-numbered pairs
    in step 2 i. In the other step, a node averages among its own ranks. In this way only half of the nodes use the
    network at any time. Weights are uniform. All ranks have the exact mean after a period of 2 log2(nodes) steps.

    Source: Wang and Johansson, "From Promise to Practice", ICLR 2025, and its package Decent-DP.

    Parameters
    ----------
    size
        The number of ranks. All of them may be on one node.
    ranks_per_node
        A divisor of `size` such that the number of nodes is a power of two.

    Raises
    ------
    ValueError
        The number of nodes is not a power of two, or the ranks do not fill the nodes.

    >>> [alternating_exponential_ring(4).at(step).in_neighbors(0) for step in range(4)]
    [(), (1,), (), (2,)]
    """
    size = checked_integer("alternating-exponential-ring: size", size, at_least=1)
    width = checked_integer("alternating-exponential-ring: ranks_per_node", ranks_per_node, at_least=1)
    nodes = size // width
    if nodes * width != size or nodes & (nodes - 1):
        raise ValueError(
            f"alternating-exponential-ring: expected a power of two as the number of nodes, got {size} ranks with "
            f"{width} per node"
        )
    steps = [_exchanges(nodes, width, bit, turn) for bit in powers_of_two(nodes) for turn in (1, 0)]
    return _of_steps("alternating-exponential-ring", size, steps or [_among(range(size))])


def _exchanges(nodes: int, width: int, bit: int, turn: int) -> list[tuple[int, int]]:
    """Return the edges of a step.

    Pairs of nodes are numbered. A pair whose number modulo 2 is `turn` averages across its nodes, any other pair within
    each node.
    """
    edges: list[tuple[int, int]] = []
    for number, first in enumerate(node for node in range(nodes) if not node & bit):
        members = [range(node * width, (node + 1) * width) for node in (first, first | bit)]
        groups: list[Sequence[int]] = [[*members[0], *members[1]]] if number % 2 == turn else [*members]
        edges.extend(edge for group in groups for edge in _among(group))
    return edges


def _among(ranks: Sequence[int]) -> list[tuple[int, int]]:
    return [(rank, peer) for rank in ranks for peer in ranks if rank != peer]


def _of_steps(name: str, size: int, steps: Sequence[Sequence[tuple[int, int]]]) -> TimeVarying:
    return TimeVarying(
        [Topology(size, edges, name=f"{name}, step {step},") for step, edges in enumerate(steps)], name=name
    )
