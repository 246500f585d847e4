"""How fast a job would be if communication and synchronisation cost nothing: the limit of its method under its load."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ..simulation import seconds_for_all
from ..train.synchronizers import METHODS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..train.registry import Choice
    from ..train.synchronizers import Synchronizer

__all__ = ["ideal_steps_per_s"]


def ideal_steps_per_s(method: Choice, seconds: NDArray[np.float64], seed: int) -> float | None:
    """Return the steps per second of a rank until the last one has taken its own; None: of this method it is not known.

    Parameters
    ----------
    method
        What is trained with.
    seconds
        Work, shape (ranks, steps).
    seed
        Of the policy, if the method says none.
    """
    model = cast("type[Synchronizer]", METHODS.find(method))
    arguments = model.simulated(**{"seed": seed, **method.options})
    if arguments is None or not seconds.any():
        return None
    steps: int = seconds.shape[1]
    return steps / seconds_for_all(seconds, **arguments)
