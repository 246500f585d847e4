"""Push-sum: averages over directed graphs, where a rank's numbers of in- and out-neighbors may differ (SGP)."""

from __future__ import annotations

from .arguments import PushSumArguments
from .neighborhood import Neighborhood


class PushSum(Neighborhood[PushSumArguments]):
    """Averages over a directed graph by push-sum; made by `Communicator.push_sum`.

    Each rank holds a sum x and a weight, initially 1, and gives shares of both to its out-neighbors. In step k all
    ranks compute x = P[k] x and weight = P[k] weight, where the columns of P[k] sum to 1. The result of a step is the
    model x / weight, the *de-biased* value (Assran et al., "Stochastic Gradient Push for Distributed Deep Learning",
    ICML 2019, Algorithm 1). The sums of x and of the weights over all ranks never change.

    If the caller changes the model between two steps, such as by a gradient step, the change is added to x (line 4 of
    that algorithm).

    With `overlap=1`, a step waits for the messages of the previous step, so that messages travel during computation.
    This is Algorithm 2 of the paper with tau = 1, except that a step always includes the same messages, however fast
    they are. `final` returns the model with the pending messages included.

    A rank that has left keeps its x and weight. Later shares for it return to their senders one step later. If all
    in-neighbors of a rank have left, the rank sends shares but receives none: its weight shrinks with each step, and
    changes of x count more and more. All ranks should therefore take the same number of steps, or leave together.

    Attributes
    ----------
    overlap
        0 or 1: the number of steps after which messages count.

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
        """The number of steps after which messages count: 0 or 1."""
        return self._arguments.overlap

    @property
    def weight(self) -> float:
        """The weight of the newest model from a step or `final`, initially 1. The sum x is model times weight."""
        return self._collective.weight
