"""Learning-rate schedules: the factor of the rate at an epoch, which may be fractional."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable

    Schedule = Callable[[float], float]


def constant() -> Schedule:
    """Keep the rate constant, as in the analysis of eager-SGD (section 6)."""
    return lambda epoch: 1.0


def milestones(*, at: str | float, factor: float = 0.1) -> Schedule:
    """Multiply the rate by `factor` at each of the epochs `at`, such as "80:120" (He et al. 2016, section 4.2)."""
    try:
        epochs = [float(epoch) for epoch in str(at).split(":")]
    except ValueError:
        raise ValueError(f"milestones: expected epochs like 80:120, got {at!r}") from None
    return lambda epoch: float(factor ** sum(epoch >= milestone for milestone in epochs))


def warmup(*, epochs: float = 5.0, begin: float = 0.1) -> Schedule:
    """Raise the factor from `begin` to 1 within the first `epochs` epochs (Goyal et al. 2017, section 2.2)."""
    _check(epochs)
    return lambda epoch: min(1.0, begin + (1 - begin) * epoch / epochs)


def cosine(*, epochs: float) -> Schedule:
    """Reduce the factor from 1 to 0 along half a cosine within `epochs` epochs (Loshchilov and Hutter 2017)."""
    _check(epochs)
    return lambda epoch: (1 + math.cos(math.pi * min(1.0, epoch / epochs))) / 2


def _check(epochs: float) -> None:
    if not epochs > 0:
        raise ValueError(f"expected epochs > 0, got {epochs}")


SCHEDULES = Registry(
    "schedule",
    {function.__name__: f"{__name__}:{function.__name__}" for function in (constant, milestones, warmup, cosine)},
)
