"""How fast a job would be if communication and synchronisation cost nothing: the limit of its method under its load."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from ..simulation import allreduce, parameter_server
from ..train.synchronizers import METHODS

if TYPE_CHECKING:
    from ..train.job import Plan
    from ..train.settings import Settings
    from ..train.synchronizers import Synchronizer

__all__ = ["ideal_steps_per_s"]


def ideal_steps_per_s(settings: Settings, plan: Plan) -> float | None:
    """Return the steps per second of a rank until the last one has taken its own; None: of this method it is not known.

    Wherever replicas are made equal, ranks wait for each other, whatever the method.
    """
    method = settings.method
    model = cast("type[Synchronizer]", METHODS.find(method))
    arguments = model.simulated(**{"seed": settings.seed, **method.options})
    if arguments is None or not plan.seconds.any():
        return None
    ends = range(plan.settle_every, plan.steps, plan.settle_every) if plan.settle_every else []
    parts = np.split(plan.seconds, ends, axis=1)
    seconds_for_all = parameter_server.seconds_for_all if "sync" in arguments else allreduce.seconds_for_all
    return plan.steps / sum(seconds_for_all(part, **arguments) for part in parts)
