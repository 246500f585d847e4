"""Neighbor averaging: each rank takes the weighted mean of its own model and its neighbors' (D-PSGD)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..topology.arguments import checked_topology, weights_or
from .neighborhood import Neighborhood, NeighborhoodSpecification

if TYPE_CHECKING:
    from typing_extensions import Self

    from ..context import Context
    from ..support.typing import Array, BufferSpec
    from ..topology.arguments import AnyTopology

__all__ = ["NeighborAveraging"]


class NeighborAveraging(Neighborhood):
    """Averages with neighbors in a graph; made by `Communicator.neighbor_averaging`.

    In step k all ranks compute x[k + 1] = W[k] x[k], where x[k] are the models and W[k] the weights of the topology
    (Lian et al., "Can Decentralized Algorithms Outperform Centralized Algorithms?", NeurIPS 2017, Algorithm 1, line 4).
    A rank waits for its neighbors alone. Sums are computed in the order own, then neighbors ascending, so results have
    the same bits in every run; 16-bit floats are added up in float32, and rounded once per step.

    If a rank has closed it, its weight goes to the own models of its neighbors: weights still sum to one, and under
    symmetric ones, such as "metropolis", the mean of the remaining ranks does not change.

    >>> import numpy as np, pycollectives as pc
    >>> from pycollectives.testing import run_ranks
    >>> def program(comm):
    ...     w = np.full(2, float(comm.rank))
    ...     with comm.neighbor_averaging(like=w, topology=pc.topology.ring(comm.size)) as na:
    ...         na.start(w)  # returns at once; compute the gradient at w meanwhile
    ...         na.wait(w)
    ...     return w.round(3).tolist()
    >>> run_ranks(3, program)
    [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]
    """

    _call = "neighbor_averaging"
    _push_sum = False

    @classmethod
    def create(
        cls,
        context: Context,
        /,
        *,
        like: BufferSpec,
        topology: AnyTopology,
        weights: str | None = None,
        name: str | None = None,
    ) -> Self:
        """Make one, by the arguments of `Communicator.neighbor_averaging`; collective."""

        def check(its_name: object) -> NeighborhoodSpecification:
            graph = checked_topology(topology, context.size)
            kind = weights_or(graph, weights, "metropolis")
            graph.check_row_stochastic(kind)
            graph.check_connected()
            return NeighborhoodSpecification.checked(like, topology=graph, weights=kind, overlap=0, name=its_name)

        return cls._make(context, name, check)

    def average(self, w: BufferSpec, timeout: float | None = None) -> Array:
        """Do a step in place: `start` and `wait`.

        Parameters
        ----------
        w
            C-contiguous, writable host memory of the shape and dtype of `like`.
        timeout
            Seconds; None for the communicator's default.

        Raises
        ------
        StallError
            Not done in time: names the neighbors that have not come, and the step. `w` is unchanged; the step goes on,
            and `wait` gives its result.
        ValueError, TypeError, BufferError, RankFailedError, RuntimeError, ClosedError
            As `start` and `wait`.
        """
        limit = self._context.limit(timeout)
        array = self._writable(w)
        self.start(array)
        return self.wait(array, limit)
