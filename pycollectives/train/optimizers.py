"""Update rules U(G, w, t) on flat weights, on the host or a device (eager-SGD, Algorithm 2, line 7)."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Protocol

import numpy as np

from .arrays import assign, module_of
from .registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray


class Optimizer(Protocol):
    """An update rule and its state."""

    def update(self, weights: NDArray[np.float32], gradient: NDArray[np.float32], number: int) -> None:
        """Update `weights` in place with `gradient`, in step `number`."""

    def state(self) -> dict[str, NDArray[np.float32]]:
        """Return the arrays that a checkpoint must hold, by name, without copying them."""

    def load_state(self, state: Mapping[str, NDArray[np.float32]]) -> None:
        """Load the arrays that `state` returned."""


def _checked(rate: float) -> float:
    if not 0 < rate < math.inf:
        raise ValueError(f"optimizer: rate: expected a number > 0, got {rate}")
    return rate


class SGD:
    """w -= r (v <- momentum v + gradient + weight_decay w), r = rate * schedule(number).

    With `nesterov`, w -= r (momentum v + gradient + weight_decay w) with the same v: Sutskever et al. 2013, as in
    EAMSGD (Zhang et al. 2015, Algorithm 2). If momentum and weight decay are 0, the rule is linear in the gradient: one
    step with a sum of gradients equals several steps.
    """

    def __init__(
        self,
        weights: NDArray[np.float32],
        schedule: Callable[[int], float],
        *,
        rate: float = 0.1,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
    ) -> None:
        self._schedule = schedule
        self._rate, self._momentum, self._decay = _checked(rate), momentum, weight_decay
        if nesterov and not momentum:
            raise ValueError("optimizer: nesterov: expected a momentum > 0, got 0")
        self._is_ahead = nesterov
        self._arrays = module_of(weights)
        self._velocity = self._arrays.zeros_like(weights if momentum else weights[:0])
        self._change = self._arrays.empty_like(weights)

    def update(self, weights: NDArray[np.float32], gradient: NDArray[np.float32], number: int) -> None:
        direction = gradient
        if self._decay:
            direction = self._arrays.multiply(weights, self._decay, out=self._change)
            direction += gradient
        if self._momentum:
            self._velocity *= self._momentum
            self._velocity += direction
            direction = direction + self._momentum * self._velocity if self._is_ahead else self._velocity
        weights -= self._arrays.multiply(direction, self._rate * self._schedule(number), out=self._change)

    def state(self) -> dict[str, NDArray[np.float32]]:
        """Return the velocity."""
        return {"velocity": self._velocity}

    def load_state(self, state: Mapping[str, NDArray[np.float32]]) -> None:
        assign(self._velocity, state["velocity"])


class Adam:
    """Adam (Kingma and Ba 2015, Algorithm 1); with `weight_decay`, AdamW (Loshchilov and Hutter 2019, Algorithm 2)."""

    def __init__(
        self,
        weights: NDArray[np.float32],
        schedule: Callable[[int], float],
        *,
        rate: float = 1e-3,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        self._schedule = schedule
        self._rate, self._beta1, self._beta2, self._epsilon = _checked(rate), beta1, beta2, epsilon
        self._decay = weight_decay
        self._arrays = module_of(weights)
        self._mean, self._square = self._arrays.zeros_like(weights), self._arrays.zeros_like(weights)
        self._updates = np.zeros(1, np.float32)

    def update(self, weights: NDArray[np.float32], gradient: NDArray[np.float32], number: int) -> None:
        self._updates += 1
        t = float(self._updates[0])
        self._mean += (1 - self._beta1) * (gradient - self._mean)
        self._square += (1 - self._beta2) * (gradient * gradient - self._square)
        mean, square = self._mean / (1 - self._beta1**t), self._square / (1 - self._beta2**t)
        rate = self._rate * self._schedule(number)
        if self._decay:
            weights *= 1 - rate * self._decay
        weights -= rate * mean / (self._arrays.sqrt(square) + self._epsilon)

    def state(self) -> dict[str, NDArray[np.float32]]:
        """Return both moments, and the number of updates."""
        return {"mean": self._mean, "square": self._square, "updates": self._updates}

    def load_state(self, state: Mapping[str, NDArray[np.float32]]) -> None:
        for name, array in self.state().items():
            assign(array, state[name])


class Timed:
    """An update rule that counts the seconds of its updates, to separate them from the waiting time of a method.

    `on_update` is called after each update.
    """

    def __init__(self, optimizer: Optimizer, on_update: Callable[[], None] = lambda: None) -> None:
        self._optimizer, self._on_update = optimizer, on_update
        self.state, self.load_state = optimizer.state, optimizer.load_state
        self.seconds = 0.0

    def update(self, weights: NDArray[np.float32], gradient: NDArray[np.float32], number: int) -> None:
        begin = time.perf_counter()
        self._optimizer.update(weights, gradient, number)
        self._on_update()
        self.seconds += time.perf_counter() - begin


OPTIMIZERS = Registry("optimizer", {"sgd": f"{__name__}:SGD", "adam": f"{__name__}:Adam"}, aliases={"lr": "rate"})
