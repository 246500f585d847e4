"""Rules by which a parameter server applies a gradient to the weights."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field
from typing import Any

from ..support.validation import Declared


@dataclass(frozen=True)
class UpdateRule(Declared, ABC):
    """Abstract base class of the update rules. 16-bit floats are kept and updated in float32."""

    @abstractmethod
    def engine_arguments(self) -> dict[str, Any]:
        """Return the arguments that describe the rule to the engine."""


def _between(at_least: float, below: float) -> dict[str, Any]:
    """Return the metadata of a field that is a number within limits."""

    def check(kind: str, name: str, value: Any) -> float:
        if isinstance(value, (bool, str)):
            raise TypeError(f"{kind}: expected a number for {name}, got {value!r}")
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise TypeError(f"{kind}: expected a number for {name}, got {value!r}") from None
        if not at_least <= number < below:  # NaN too
            raise ValueError(f"{kind}: expected {at_least:g} <= {name} < {below:g}, got {value!r}")
        return number

    return {"check": check}


_NON_NEGATIVE = _between(0.0, math.inf)
_BELOW_ONE = _between(0.0, 1.0)


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

    rate: float = field(metadata=_NON_NEGATIVE)
    momentum: float = field(default=0.0, metadata=_BELOW_ONE)

    def engine_arguments(self) -> dict[str, Any]:
        return {"rule": "sgd", **asdict(self)}


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

    rate: float = field(metadata=_NON_NEGATIVE)
    beta1: float = field(default=0.9, metadata=_BELOW_ONE)
    beta2: float = field(default=0.999, metadata=_BELOW_ONE)
    epsilon: float = field(default=1e-8, metadata=_NON_NEGATIVE)

    def engine_arguments(self) -> dict[str, Any]:
        return {"rule": "adam", **asdict(self)}
