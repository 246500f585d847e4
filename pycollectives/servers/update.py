"""Rules by which a parameter server applies a gradient to the weights."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class UpdateRule(ABC):
    """Base of the update rules; not a rule itself. 16-bit floats are kept and updated in float32."""

    @abstractmethod
    def engine_arguments(self) -> dict[str, Any]:
        """Return the arguments that describe the rule to the engine."""


@dataclass(frozen=True)
class SGD(UpdateRule):
    """Gradient descent: weights -= rate * v, where v = momentum * v + gradient.

    Parameters
    ----------
    rate
        The learning rate, at least 0.
    momentum
        0 <= momentum < 1; without momentum (0) the server needs no memory for v.

    >>> SGD(0.1)
    SGD(rate=0.1, momentum=0.0)
    """

    rate: float
    momentum: float = 0.0

    def __post_init__(self) -> None:
        checked_number(self, "rate", 0.0, math.inf)
        checked_number(self, "momentum", 0.0, 1.0)

    def engine_arguments(self) -> dict[str, Any]:
        return {"rule": "sgd", "rate": self.rate, "momentum": self.momentum}


@dataclass(frozen=True)
class Adam(UpdateRule):
    """Adam (Kingma and Ba, 2015, Algorithm 1).

    Parameters
    ----------
    rate
        The learning rate, at least 0: alpha in the paper.
    beta1, beta2
        Decay of the moments, 0 <= beta < 1.
    epsilon
        Added to the denominator, at least 0.

    >>> Adam(1e-3).beta2
    0.999
    """

    rate: float
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        checked_number(self, "rate", 0.0, math.inf)
        checked_number(self, "beta1", 0.0, 1.0)
        checked_number(self, "beta2", 0.0, 1.0)
        checked_number(self, "epsilon", 0.0, math.inf)

    def engine_arguments(self) -> dict[str, Any]:
        return {
            "rule": "adam",
            "rate": self.rate,
            "beta1": self.beta1,
            "beta2": self.beta2,
            "epsilon": self.epsilon,
        }


def checked_number(instance: object, field: str, at_least: float, below: float) -> None:
    """Check a field and convert it to `float`; raise `ValueError` or `TypeError`."""
    value = getattr(instance, field)
    name = type(instance).__name__
    if isinstance(value, (bool, str)):
        raise TypeError(f"{name}: expected a number as {field}, got {value!r}")
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name}: expected a number as {field}, got {value!r}") from None
    if not at_least <= number < below:  # NaN too
        raise ValueError(f"{name}: expected {at_least:g} <= {field} < {below:g}, got {value!r}")
    object.__setattr__(instance, field, number)
