"""Push-sum: averages over directed graphs, in which not all ranks have as many in- as out-neighbors (SGP)."""

from __future__ import annotations

from .arguments import PushSumArguments
from .neighborhood import Neighborhood

__all__ = ["PushSum"]


class PushSum(Neighborhood[PushSumArguments]):
    """Push-sum over a directed graph; made by `Communicator.push_sum`.

    Each rank holds a sum x and a weight, from the start 1, and gives shares of both to its out-neighbors: in step k all
    ranks compute x = P[k] x and weight = P[k] weight, where the columns of P[k] sum to 1. The model is x / weight, the
    *de-biased* value, which is a step's result (Assran et al., "Stochastic Gradient Push for Distributed Deep
    Learning", ICML 2019, Algorithm 1). The sums of x and of the weights over all ranks never change.

    What the caller changes in the model between a step and the next, such as a gradient step, is added to x as
    it is, as in line 4 of that algorithm.

    With `overlap=1` a step waits for what was sent in the step before, so that messages travel during computation
    (Algorithm 2 of the paper with tau = 1, but always the same messages, whatever their speed). `final` gives the model
    with what is on its way included.

    A rank that has left keeps its x and weight. What was meant for it afterwards returns to who would have given it,
    one step later. If all in-neighbors of a rank have left, it still sends shares but receives none: its weight falls
    with each step, and what is added to x counts ever more. So ranks should make as many steps, or leave too.

    Attributes
    ----------
    overlap
        0 or 1: how many steps later what is sent counts.

    >>> import numpy as np, pycollectives as pc
    >>> from pycollectives.testing import run_ranks
    >>> def program(comm):
    ...     w = np.full(2, float(comm.rank))
    ...     with comm.push_sum(w, topology="exponential") as ps:
    ...         for step in range(30):
    ...             ps.average(w)
    ...         return w.round(3).tolist(), round(ps.weight, 3)
    >>> run_ranks(3, program)
    [([1.0, 1.0], 1.0), ([1.0, 1.0], 1.0), ([1.0, 1.0], 1.0)]
    """

    arguments = PushSumArguments
    push_sum = True

    @property
    def overlap(self) -> int:
        """How many steps later what is sent counts."""
        return self._arguments.overlap

    @property
    def weight(self) -> float:
        """The weight of the model that a step or `final` gave last, at first 1: x is that model times it."""
        return self._collective.weight
