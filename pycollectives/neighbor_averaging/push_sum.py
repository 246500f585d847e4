"""Push-sum: averages over directed graphs, in which not all ranks have as many in- as out-neighbors (SGP)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..support.validation import checked_integer
from ..topology.arguments import checked_topology, weights_or
from .neighborhood import Neighborhood, NeighborhoodSpecification

if TYPE_CHECKING:
    from typing_extensions import Self

    from ..context import Context
    from ..support.typing import BufferSpec
    from ..topology.arguments import AnyTopology

__all__ = ["PushSum"]


class PushSum(Neighborhood):
    """Push-sum over a directed graph; made by `Communicator.push_sum`.

    Each rank holds a sum x and a weight, from the start 1, and gives shares of both to its out-neighbors: in step k all
    ranks compute x = P[k] x and weight = P[k] weight, where the columns of P[k] sum to 1. The model is x / weight, the
    *de-biased* value, which `wait` returns (Assran et al., "Stochastic Gradient Push for Distributed Deep Learning",
    ICML 2019, Algorithm 1). The sums of x and of the weights over all ranks never change.

    What the caller changes in the model between `wait` and the next `start`, such as a gradient step, is added to x as
    it is, as in line 4 of that algorithm.

    With `overlap=1` a step waits for what was sent in the step before, so that messages travel during computation
    (Algorithm 2 of the paper with tau = 1, but always the same messages, whatever their speed). `final` gives the model
    with what is on its way included.

    If a rank has closed it, it keeps its x and weight. What was meant for it afterwards returns to who would have given
    it, one step later. A rank whose in-neighbors have all closed it gives on without being given: its weight falls with
    each step, and what is added to x counts ever more. So ranks should make as many steps, or close it too.

    Attributes
    ----------
    overlap
        0 or 1: how many steps later what is sent counts.

    >>> import numpy as np, pycollectives as pc
    >>> from pycollectives.testing import run_ranks
    >>> def program(comm):
    ...     w = np.full(2, float(comm.rank))
    ...     with comm.push_sum(like=w, topology=pc.topology.exponential(comm.size)) as ps:
    ...         for step in range(30):
    ...             ps.start(w)
    ...             ps.wait(w)
    ...         return w.round(3).tolist(), round(ps.weight, 3)
    >>> run_ranks(3, program)
    [([1.0, 1.0], 1.0), ([1.0, 1.0], 1.0), ([1.0, 1.0], 1.0)]
    """

    _call = "push_sum"
    _push_sum = True

    @classmethod
    def create(
        cls,
        context: Context,
        /,
        *,
        like: BufferSpec,
        topology: AnyTopology,
        overlap: int = 0,
        weights: str | None = None,
        name: str | None = None,
    ) -> Self:
        """Make one, by the arguments of `Communicator.push_sum`; collective."""

        def check(its_name: object) -> NeighborhoodSpecification:
            graph = checked_topology(topology, context.size)
            kind = weights_or(graph, weights, "push-sum")
            graph.check_column_stochastic(kind)
            graph.check_connected()  # a rank that gives and is given nothing would lose its weight to others
            steps = checked_integer("overlap", overlap, at_least=0, at_most=1)
            return NeighborhoodSpecification.checked(like, topology=graph, weights=kind, overlap=steps, name=its_name)

        return cls._make(context, name, check)

    @property
    def overlap(self) -> int:
        """How many steps later what is sent counts."""
        return self._specification.overlap

    @property
    def weight(self) -> float:
        """The weight of the model that `wait` or `final` gave last, at first 1: x is that model times it."""
        return self._collective.weight
