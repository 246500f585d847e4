"""Neighbor averaging: each rank takes the weighted mean of its own model and its neighbors' (D-PSGD)."""

from __future__ import annotations

from .arguments import NeighborAveragingArguments
from .neighborhood import Neighborhood

__all__ = ["NeighborAveraging"]


class NeighborAveraging(Neighborhood[NeighborAveragingArguments]):
    """Averages with neighbors in a graph; made by `Communicator.neighbor_averaging`.

    In step k all ranks compute x[k + 1] = W[k] x[k], where x[k] are the models and W[k] the weights of the topology
    (Lian et al., "Can Decentralized Algorithms Outperform Centralized Algorithms?", NeurIPS 2017, Algorithm 1, line 4).
    A rank waits for its neighbors alone. Sums are computed in the order own, then neighbors ascending, so results have
    the same bits in every run; 16-bit floats are added up in float32, and rounded once per step.

    If a rank has left, its weight goes to the own models of its neighbors: weights still sum to one, and under
    symmetric ones, such as "metropolis", the mean of the remaining ranks does not change.

    >>> import numpy as np, pycollectives as pc
    >>> from pycollectives.testing import run_ranks
    >>> def program(comm):
    ...     w = np.full(2, float(comm.rank))
    ...     with comm.neighbor_averaging(w, topology="ring") as na:
    ...         request = na.start(w)  # returns at once; compute the gradient at w meanwhile
    ...         request.wait()
    ...         return na.result.round(3).tolist()
    >>> run_ranks(3, program)
    [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]
    """

    arguments = NeighborAveragingArguments
    push_sum = False
