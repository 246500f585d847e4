"""Compute the speed of a job at zero communication cost: the limit of its method under its load."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from ..simulation import allreduce, hop, pairwise_averaging, parameter_server
from ..train.job import Plan
from ..train.synchronizers import METHODS

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..train.settings import Settings
    from ..train.synchronizers import Synchronizer

__all__ = ["expected_s", "ideal_steps_per_s"]

SIMULATORS = {
    "allreduce": allreduce.seconds_for_all,
    "hop": hop.seconds_for_all,
    "pairwise_averaging": pairwise_averaging.seconds_for_all,
    "parameter_server": parameter_server.seconds_for_all,
}


def expected_s(settings: Settings, ranks: int) -> float | None:
    """Return the seconds of a job at its ideal speed; None if that speed is unknown."""
    plan = Plan.of(settings, rank=0, ranks=ranks)
    speed = ideal_steps_per_s(settings, plan)
    return None if speed is None else plan.steps / speed


def ideal_steps_per_s(settings: Settings, plan: Plan) -> float | None:
    """Return the steps per second of a rank until the last rank has finished; None if unknown for this method.

    Under every method, ranks wait for each other whenever replicas are made equal. If ranks take batches by their
    speed, the result is the speed of ranks that never wait.
    """
    if settings.by_speed:
        seconds = plan.seconds.mean(axis=1)
        return float(np.mean(1 / seconds)) if seconds.all() else None
    method = settings.method
    model = cast("type[Synchronizer]", METHODS.find(method))
    found = model.simulated(**{"seed": settings.seed, **method.options})
    if found is None or not plan.seconds.any():
        return None
    seconds_for_all = cast("Callable[..., float]", SIMULATORS[found.simulator])
    ends = range(plan.settle_every, plan.steps, plan.settle_every) if plan.settle_every else []
    return plan.steps / sum(seconds_for_all(part, **found.arguments) for part in np.split(plan.seconds, ends, axis=1))
