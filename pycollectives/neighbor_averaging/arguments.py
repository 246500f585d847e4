"""The arguments of averages with neighbors: checks on one rank, and a form that ranks can compare."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, Literal, SupportsFloat

import attrs

from ..arguments import LOCAL, Arguments, Template, as_given, compared_as, creation, initial_model, model_like, one_of
from ..support.validation import checked_integer
from ..topology.arguments import AnyTopology, checked_static_topology, checked_topology, described, weights_or
from ..topology.conversion import from_matrix
from ..topology.survivors import among, without

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..topology.graph import Topology
    from ..topology.weights import Matrix

SEGMENT_BYTES = 64 << 10
"""Averaging two segments of this size takes about 10 microseconds, during which `read` and `apply` may wait."""
SEGMENT_BYTES_ON_DEVICE = 4 << 20
"""Each segment costs a launch and a poll, about 20 microseconds. Longer segments gain little."""

Step = tuple[float, "Sequence[tuple[int, float]]", "Sequence[tuple[int, float]]"]


# --- Synchronous: D-PSGD and SGP


def _topology(topology: AnyTopology | str) -> AnyTopology:
    return checked_topology(topology, creation().numbered)


def _overlap(steps: int) -> int:
    return checked_integer("overlap", steps, at_least=0, at_most=1)


@attrs.frozen
class NeighborhoodArguments(Arguments):
    """Common arguments of the synchronous averages. `usual_weights` is the default kind of weights."""

    usual_weights: ClassVar[str]
    overlap = 0

    like: Template = attrs.field(converter=model_like)
    topology: AnyTopology = attrs.field(
        default=as_given("ring"), kw_only=True, converter=_topology, metadata=compared_as(described)
    )
    weights: str | None = attrs.field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        kind = weights_or(self.topology, self.weights, self.usual_weights)
        self._check_weights(kind)
        self.topology.check_connected()
        object.__setattr__(self, "weights", kind)

    def _check_weights(self, kind: str) -> None:
        """Raise `ValueError` if weights of this kind do not yield a valid average."""

    def for_engine(self, rank: int, members: Sequence[int] = (), first: int = 0) -> dict[str, Any]:
        """Return the keyword arguments of the engine's collective on a rank.

        After deaths, `members` are the survivors, and the engine numbers them from 0. `first` is the first step.
        """
        if 0 < len(members) < self.topology.size:
            position = members.index(rank)
            steps = [_step_in(matrix, position) for matrix in among(self.topology, self.weights, members)]
        else:
            steps = [self._step_of(rank, step) for step in range(self.topology.period)]
        first %= len(steps)
        return {
            "count": self.like.buffer.count,
            "dtype_name": self.like.buffer.dtype.name,
            "overlap": self.overlap,
            "steps": steps[first:] + steps[:first],
            "name": self.name,
        }

    def _step_of(self, rank: int, step: int) -> Step:
        """Return a rank's own weight in a step, and its in- and out-neighbors with their weights."""
        graph = self.topology.at(step)
        own, taken = graph.weights_of(rank, self.weights)
        _, given = graph.shares_of(rank, self.weights)
        return own, sorted(taken.items()), sorted(given.items())


def _step_in(matrix: Matrix, rank: int) -> Step:
    """Return a rank's own weight in a matrix, and its in- and out-neighbors with their weights."""
    taken, given = (
        [(peer, float(weight)) for peer, weight in enumerate(weights) if peer != rank and weight > 0]
        for weights in (matrix[rank], matrix[:, rank])
    )
    return float(matrix[rank, rank]), taken, given


@attrs.frozen
class NeighborAveragingArguments(NeighborhoodArguments):
    """Make a `NeighborAveraging`, the exchange of D-PSGD; collective.

    Parameters
    ----------
    like
        A buffer, or `[buffer, count, type]`, with the count and dtype of the model: float16, bfloat16, float32 or
        float64.
    topology
        The graph along which ranks average: one of `pycollectives.topology`, which may change from step to step, or its
        name.
    weights
        A kind of weights of `Topology.matrix` whose rows sum to 1. Default: the graph's own weights if it has any,
        otherwise "metropolis", which needs a symmetric graph.
    name
        The name in messages and traces. Default: numbered in the order of creation.
    timeout
        Time limit for the creation, in seconds; None for the communicator's default, `math.inf` for no limit.
    """

    service: ClassVar[str] = "neighbor_averaging"
    usual_weights: ClassVar[str] = "metropolis"

    def _check_weights(self, kind: str) -> None:
        self.topology.check_row_stochastic(kind)


@attrs.frozen
class PushSumArguments(NeighborhoodArguments):
    """Make a `PushSum`, the exchange of SGP for directed graphs; collective.

    Parameters
    ----------
    like
        A buffer, or `[buffer, count, type]`, with the count and dtype of the model: float16, bfloat16, float32 or
        float64.
    topology
        The graph along which ranks send: one of `pycollectives.topology`, which may change from step to step, or its
        name.
    weights
        A kind of weights of `Topology.matrix` whose columns sum to 1. Default: the graph's own weights if it has any,
        otherwise "push-sum".
    overlap
        With 0, messages count in the step in which they are sent. With 1, messages count one step later, so that they
        travel while ranks compute.
    name
        The name in messages and traces. Default: numbered in the order of creation.
    timeout
        Time limit for the creation, in seconds; None for the communicator's default, `math.inf` for no limit.
    """

    service: ClassVar[str] = "push_sum"
    usual_weights: ClassVar[str] = "push-sum"

    topology: AnyTopology = attrs.field(
        default=as_given("one-peer-exponential"), kw_only=True, converter=_topology, metadata=compared_as(described)
    )
    overlap: int = attrs.field(default=0, kw_only=True, converter=_overlap)

    def _check_weights(self, kind: str) -> None:
        self.topology.check_column_stochastic(kind)


# --- Asynchronous: AD-PSGD


def _static_topology(topology: Topology | str) -> Topology:
    graph = checked_static_topology(topology, creation().numbered)
    graph.check_symmetric()
    graph.check_connected()
    return graph


def _rate(rate: float | None) -> float | None:
    if rate is None:
        return None
    if isinstance(rate, (str, bool)) or not isinstance(rate, SupportsFloat):
        raise TypeError(f"rate: expected a number of averages per second, or None, got {rate!r}")
    number = float(rate)
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"rate: expected a positive number of averages per second, got {rate!r}")
    return number


def _seed(seed: int) -> int:
    return checked_integer("seed", seed, at_least=0, at_most=2**64 - 1)


@attrs.frozen
class PairwiseArguments(Arguments):
    """Make a `PairwiseAveraging`: a model averaged in the background with one neighbor at a time; collective (AD-PSGD).

    Parameters
    ----------
    initial
        This rank's initial model, which is copied: a buffer, or `[buffer, count, type]`, of float16, bfloat16, float32
        or float64. If it is an array on a CUDA device, the models of all ranks are on devices.
    topology
        The graph along which ranks average: a connected, symmetric graph of `pycollectives.topology`, or its name.
        Between nodes, only one side of a bipartite graph begins averages, so that no request is declined (section
        3.3.1).
    pace
        When this rank begins averages. "continuous": repeatedly, in the background. "per_step": one for each `apply`.
    rate
        Under "continuous", the maximum number of averages per second that this rank begins. By default, this rank
        pauses for 30 times the duration of an average on its node, and for a millisecond after other averages. The rate
        may differ between ranks.
    order
        The order of neighbors: "random", as in the paper, or "round-robin". The order may differ between ranks.
    seed
        Seed for drawing neighbors.
    acceleration
        "a2cid2": momentum between averages, for graphs in which averages spread slowly, such as rings (Nabli,
        Belilovsky and Oyallon 2023). It needs memory for a second model. Default: None.
    weighting
        "uniform": each `apply` has the same weight, so that the common model is biased towards the optima of ranks that
        apply more often. "frequency": the weight is proportional to the time between this rank's calls, divided by the
        mean over all ranks.
    lock
        "segment": segments of 64 KiB, or 4 MiB on a device, are averaged one by one. "model": the whole model is
        averaged under one lock, for comparison; `read` and `apply` then wait for whole averages.
    name
        The name in messages and traces. Default: numbered in the order of creation.
    timeout
        Time limit for the creation, in seconds; None for the communicator's default, `math.inf` for no limit.
    """

    service: ClassVar[str] = "pairwise_averaging"

    initial: Template = attrs.field(converter=initial_model)
    topology: Topology = attrs.field(
        default=as_given("bipartite-exponential"),
        kw_only=True,
        converter=_static_topology,
        metadata=compared_as(described),
    )
    pace: Literal["continuous", "per_step"] = attrs.field(
        default="continuous", kw_only=True, validator=one_of("continuous", "per_step")
    )
    rate: float | None = attrs.field(default=None, kw_only=True, converter=_rate, metadata=LOCAL)
    order: Literal["random", "round-robin"] = attrs.field(
        default="random", kw_only=True, validator=one_of("random", "round-robin"), metadata=LOCAL
    )
    seed: int = attrs.field(default=0, kw_only=True, converter=_seed)
    acceleration: Literal["a2cid2"] | None = attrs.field(
        default=None, kw_only=True, validator=attrs.validators.optional(one_of("a2cid2"))
    )
    weighting: Literal["uniform", "frequency"] = attrs.field(
        default="uniform", kw_only=True, validator=one_of("uniform", "frequency")
    )
    lock: Literal["segment", "model"] = attrs.field(
        default="segment", kw_only=True, validator=one_of("segment", "model")
    )

    def __attrs_post_init__(self) -> None:
        if self.rate is not None and self.pace != "continuous":
            raise ValueError(
                f"rate: expected None under pace={self.pace!r}, which defines when averages begin, got {self.rate!r}"
            )

    def for_engine(self, rank: int, members: Sequence[int] = (), active: Sequence[int] = ()) -> dict[str, Any]:
        """Return the keyword arguments of the engine's collective on a rank.

        After deaths, `members` are the survivors, and the engine numbers them from 0. The `active` members have not
        left the collective.
        """
        graph, vertices = self.topology, active or range(self.topology.size)
        if len(vertices) < graph.size:
            graph = from_matrix(without(graph.matrix(), vertices))
        sides = graph.sides() if graph.is_bipartite else None
        neighbors: Sequence[int] = ()
        if rank in vertices:
            neighbors = [vertices[vertex] for vertex in graph.in_neighbors(vertices.index(rank))]
        return {
            "name": self.name,
            "count": self.initial.buffer.count,
            "dtype_name": self.initial.buffer.dtype.name,
            "segment_bytes": self._segment_bytes(),
            "neighbors": [members.index(neighbor) for neighbor in neighbors] if members else neighbors,
            # The active set of AD-PSGD, section 3.3.1.
            "initiates": rank in vertices and (sides is None or vertices.index(rank) in sides[0]),
            "random": self.order == "random",
            "seed": self.seed,
            "per_step": self.pace == "per_step",
            "period": 0.0 if self.rate is None else 1 / self.rate,
            "acceleration": self._acceleration(graph),
            "by_frequency": self.weighting == "frequency",
        }

    def _segment_bytes(self) -> int:
        """Return the size of a segment in bytes; 0 if the whole model is one segment."""
        if self.lock == "model":
            return 0
        return SEGMENT_BYTES if self.initial.device is None else SEGMENT_BYTES_ON_DEVICE

    def _acceleration(self, graph: Topology) -> tuple[float, float] | None:
        """Return the fraction of x - x~ that is kept between two averages, and alpha~ (A2CiD2, sections 3.1 and 3.3).

        The unit of time is one average of this rank, which needs no clock and works on slow networks too.
        """
        if self.acceleration is None or graph.size == 1:
            return None
        chi1, chi2 = graph.chi()
        eta = 1 / (2 * math.sqrt(chi1 * chi2))
        return math.exp(-2 * eta), math.sqrt(chi1 / chi2) / 2
