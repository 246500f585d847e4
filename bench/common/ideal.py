"""Compute each rank's wait at zero communication cost, the limit of a policy's latency.

The wait depends only on the arrivals. A round starts when its policy allows it and ends at once, so rank r waits
max(0, start - arrival of r). A rank that arrives later does not wait.
"""

from __future__ import annotations

from math import comb
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from .policies import PolicyName

Floats = NDArray[np.float64]


def until(starts: Floats, arrivals: Floats) -> Floats:
    """Return the waits until `starts` (iterations,) of ranks that arrive at `arrivals` (ranks, iterations)."""
    return np.maximum(0.0, starts - arrivals)


def synchronous_waits(arrivals: Floats) -> Floats:
    """Return the waits of MPI_Allreduce and Full(), in which all ranks wait for the last."""
    return until(arrivals.max(axis=0), arrivals)


def policy_waits(policy: PolicyName, arrivals: Floats, initiators: NDArray[np.int64]) -> Floats:
    """Return the waits of every rank in every iteration, in the unit of `arrivals` (ranks, iterations).

    `initiators` (iterations,) are the ranks that started the rounds; Majority and AnyOf are computed for them. The
    ranks that AllOf designated are unknown, so its waits are the mean over all choices.
    """
    ranks, iterations = arrivals.shape
    if policy.kind == "solo":
        return until(arrivals.min(axis=0), arrivals)
    if policy.kind == "full":
        return synchronous_waits(arrivals)
    if policy.kind in ("majority", "any-of"):
        return until(arrivals[initiators, np.arange(iterations)], arrivals)
    in_order = np.sort(arrivals, axis=0)
    size = policy.size or 1
    if policy.kind == "quorum":
        return until(in_order[size - 1], arrivals)
    if policy.kind == "all-of":
        # The last of `size` designated ranks is the one at place k of all arrivals in comb(k, size - 1) choices.
        chances = [comb(k, size - 1) / comb(ranks, size) for k in range(ranks)]
        waits = np.zeros_like(arrivals)
        for k, chance in enumerate(chances):
            waits += chance * until(in_order[k], arrivals)
        return waits
    raise ValueError(f"no zero-cost model of policy {policy}")
