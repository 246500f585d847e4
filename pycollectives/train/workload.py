"""Injected delays: the workloads of `pycollectives.simulation.workload`, and those that need the data or a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..simulation import workload
from .registry import Registry

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .batches import Batches
    from .registry import Choice


def workload_of(choice: Choice, batches: Batches, *, ranks: int, steps: int, seed: int) -> NDArray[np.float64]:
    """Return the seconds that each rank works in each step, shape (ranks, steps).

    See `pycollectives.simulation.workload`.

    With the load `length`, a step takes `work` seconds on average, in proportion to the batch's longest example.
    """
    require_known(choice)
    if choice.name in WORKLOADS.names:
        seconds = np.asarray(WORKLOADS.make(choice, batches, ranks, steps))
    else:
        seconds = workload.make(choice.name, ranks=ranks, calls=steps, **_options(choice, seed))
    if not (np.isfinite(seconds).all() and (seconds >= 0).all()):
        raise ValueError(f"load {choice}: expected finite times >= 0, got {seconds.min()} to {seconds.max()} seconds")
    return seconds


def require_known(choice: Choice) -> None:
    """Raise ValueError if no load has the name of `choice`."""
    known = (*workload.LOADS, *WORKLOADS.names)
    if choice.name not in known:
        raise ValueError(f"load: expected one of {', '.join(known)}; got {choice.name!r}")


def _options(choice: Choice, seed: int) -> dict[str, Any]:
    for key, value in choice.options.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"load {choice.name!r}: {key}: expected a number, got {value!r}")
    if own := {"ranks", "calls"} & choice.options.keys():
        raise ValueError(f"load {choice.name!r}: unknown option {min(own)!r}: the training sets this value")
    return {"work": 0.0, "skew": 0.0, "seed": seed, **choice.options}


def _trace(batches: Batches, ranks: int, steps: int, *, file: str) -> NDArray[np.float64]:
    return workload.from_csv(Path(file), ranks=ranks, calls=steps)


def _length(batches: Batches, ranks: int, steps: int, *, work: float = 0.0) -> NDArray[np.float64]:
    return batches.work(steps) * work


WORKLOADS = Registry("load", {"trace": f"{__name__}:_trace", "length": f"{__name__}:_length"})
"""Loads besides those of `pycollectives.simulation.workload`."""
