"""Neighbor averaging: each rank takes the weighted mean of its own model and its neighbors' (D-PSGD)."""

from __future__ import annotations

from .arguments import NeighborAveragingArguments
from .neighborhood import Neighborhood


class NeighborAveraging(Neighborhood[NeighborAveragingArguments]):
    """Averages with neighbors in a graph, step by step; made by `Communicator.neighbor_averaging`.

    In step k all ranks compute x[k + 1] = W[k] x[k], where x[k] are the models and W[k] the weights of the topology
    (Lian et al., "Can Decentralized Algorithms Outperform Centralized Algorithms?", NeurIPS 2017, Algorithm 1, line 4).
    A rank waits only for its neighbors. It adds its own model first, then the neighbors' in ascending order, so that
    results have the same bits in every run. 16-bit floats are summed in float32 and rounded once per step.

    After a rank has left, each neighbor adds the weight of that rank to the weight of its own model. Weights still sum
    to 1, and symmetric weights such as "metropolis" keep the mean of the remaining ranks.

    >>> import numpy as np, pycollectives as pc
    >>> from pycollectives.testing import run_ranks
    >>> def program(comm):
    ...     w = np.full(2, float(comm.rank))
    ...     with comm.neighbor_averaging(w, topology="ring") as na:
    ...         request = na.start(w)  # returns at once; compute the gradient at w now
    ...         request.wait()
    ...         return na.result.round(3).tolist()
    >>> run_ranks(3, program)
    [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]
    """

    arguments = NeighborAveragingArguments
    push_sum = False
