"""How fast a job would be if communication and synchronisation cost nothing: the limit of its policy under its load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import policies
from ..simulation import simulate
from ..train.synchronizers.eager import DEFAULT_POLICY

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..train.registry import Choice

__all__ = ["ideal_speedup"]

IN_STEP = ("synchronous", "ddp")
"""Methods whose ranks all wait for each other in every step."""


def ideal_speedup(method: Choice, seconds: NDArray[np.float64], seed: int) -> float | None:
    """Return how many times faster than synchronous steps; None: of this method it is not known.

    Parameters
    ----------
    method
        What is trained with.
    seconds
        Work, shape (ranks, steps).
    seed
        Of the policy, if the method says none.
    """
    if method.name in IN_STEP:
        return 1.0
    policy, late = _policy(method, seed)
    if policy is None:
        return None
    return simulate(seconds, policy, nbytes=4, algorithm="recursive_doubling", late=late).throughput


def _policy(method: Choice, seed: int) -> tuple[policies.Policy | None, str]:
    if method.name == "m-synchronous":
        return policies.Quorum(method.options["m"]), "drop"
    if method.name == "eager":
        text = method.options.get("policy", DEFAULT_POLICY)
        return policies.parse(text, seed=method.options.get("seed", seed)), "accumulate"
    return None, ""
