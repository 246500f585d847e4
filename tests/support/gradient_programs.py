"""Programs whose steps are ways to make gradients, and plain PyTorch that averages `.grad` in place.

A way is one step of a program, up to `step()`. It runs with an `EagerOptimizer`, and with a `Synchronous` optimizer.
Losses are linear in the parameters with whole numbers, so that all sums are exact, and no gradient depends on the time
at which an average arrived.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from pycollectives.torch.memory import is_writable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "CHANGED",
    "LAYOUTS",
    "NOT_AVERAGED",
    "REPLACED",
    "WAYS",
    "Board",
    "Program",
    "Synchronous",
    "Way",
    "after_backward",
    "replaced",
    "way",
]

LAYOUTS: dict[str, Callable[[], torch.Tensor]] = {
    "contiguous": lambda: torch.zeros(3, 2),
    "transposed": lambda: torch.zeros(2, 3).t(),
    "channels_last": lambda: torch.zeros(2, 3, 2, 2).to(memory_format=torch.channels_last),
}


class Board:
    """A place where ranks, which are threads, exchange objects."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._barrier = threading.Barrier(size, timeout=30.0)
        self._slots: list[Any] = [None] * size

    def exchange(self, rank: int, mine: Any) -> list[Any]:
        self._slots[rank] = mine
        self._barrier.wait()
        everything = list(self._slots)
        self._barrier.wait()
        return everything


class Synchronous:
    """Plain PyTorch: `step` averages `.grad` over ranks in place; ranks are threads."""

    def __init__(self, optimizer: torch.optim.Optimizer, rank: int, board: Board) -> None:
        self.optimizer = optimizer
        self._rank = rank
        self._board = board
        self._averaged = False

    @torch.no_grad()
    def average_gradients(self) -> None:
        if self._averaged:
            return
        parameters = self.optimizer.param_groups[0]["params"]
        mine = [None if p.grad is None else p.grad.to(torch.float64).clone() for p in parameters]
        for parameter, *gradients in zip(parameters, *self._board.exchange(self._rank, mine), strict=True):
            there = [gradient for gradient in gradients if gradient is not None]
            if not there:
                parameter.grad = None
                continue
            average = sum(there[1:], there[0]) / len(gradients)
            keeps = parameter.grad is not None and _is_apart(parameter.grad, parameters)
            if not keeps:
                parameter.grad = torch.empty_like(parameter)
            parameter.grad.copy_(average)
        self._averaged = True

    def step(self, closure: Any = None) -> None:
        if closure is not None:
            closure()
        self.average_gradients()
        self.optimizer.step()
        self._averaged = False

    def zero_grad(self, set_to_none: bool = True) -> None:
        self._averaged = False
        self.optimizer.zero_grad(set_to_none=set_to_none)

    def no_sync(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def flush(self) -> None:
        """Do nothing: no data is pending."""

    def average(self, metric: float) -> float:
        return sum(self._board.exchange(self._rank, metric)) / self._board.size


def _is_apart(gradient: torch.Tensor, parameters: list[torch.Tensor]) -> bool:
    """Whether a gradient shares no memory with itself, another gradient, or a parameter, and can be written."""
    if gradient.is_inference() or gradient.is_neg() or not is_writable(gradient):
        return False
    if gradient.numel() > 1 and 0 in gradient.stride():
        return False
    others = [*parameters, *(p.grad for p in parameters if p.grad is not None and p.grad is not gradient)]
    users = sum(p.grad is gradient for p in parameters)
    return users == 1 and all(other.data_ptr() != gradient.data_ptr() for other in others)


class Program:
    """One rank's model and optimizer: two parameters of one layout, and a bias."""

    def __init__(self, rank: int, layout: str, wrap: Callable[[torch.optim.Optimizer], Any], **options: Any) -> None:
        self.rank = rank
        self.module = torch.nn.Module()
        for name in ("a", "b"):
            self.module.register_parameter(name, torch.nn.Parameter(LAYOUTS[layout]()))
        self.module.register_parameter("bias", torch.nn.Parameter(torch.zeros(4)))
        self.a, self.b, self.bias = self.w = list(self.module.parameters())
        self.step = 0
        self.flat: torch.Tensor | None = None
        self.kept: list[torch.Tensor] = []
        self.optimizer = wrap(torch.optim.SGD(self.w, lr=0.5, **options))

    def numbers(self, parameter: torch.Tensor, scale: float = 8.0) -> torch.Tensor:
        """Return whole numbers that differ between elements, parameters, ranks, and steps."""
        place = next(number for number, one in enumerate(self.w) if one is parameter)
        first = 1 + 3 * place + 5 * self.rank + 7 * self.step
        return scale * torch.arange(first, first + parameter.numel(), dtype=torch.float32).view(parameter.shape)

    def loss(self, *parameters: torch.Tensor) -> torch.Tensor:
        return sum(((p * self.numbers(p)).sum() for p in parameters or self.w), torch.zeros(()))

    def backward(self, *parameters: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        self.loss(*parameters).backward()

    def hand(self, *parameters: torch.Tensor) -> None:
        """Set gradients that no backward has computed."""
        for parameter in parameters or self.w:
            parameter.grad = torch.empty_like(parameter).copy_(self.numbers(parameter))

    @property
    def grads(self) -> Iterator[torch.Tensor]:
        return (p.grad for p in self.w if p.grad is not None)


CHANGED = "had contributed it"
REPLACED = "was replaced after average_gradients"
NOT_AVERAGED = "is not averaged"


@dataclass(frozen=True)
class Way:
    """A step of a program, and the error of `step()` if its gradients cannot be averaged."""

    run: Callable[[Program], None]
    overlapped: str | None = None  # the error if backward has contributed
    error: str | None = None  # without overlap
    only: int | None = None  # the rank that makes it; the others only compute
    depends_on_averages: bool = False  # so the sum over steps depends on when averages arrive


WAYS: dict[str, Way] = {}


def way(*arguments: Any, **options: Any) -> Callable[[Callable[[Program], None]], Callable[[Program], None]]:
    def register(run: Callable[[Program], None]) -> Callable[[Program], None]:
        name = run.__name__.removeprefix("_")
        WAYS[name] = Way(run, *arguments, **options)
        return run

    return register


def after_backward(name: str, change: Callable[[torch.Tensor], Any], *arguments: Any, **options: Any) -> None:
    """Add a way that changes each gradient after backward."""

    def run(c: Program) -> None:
        c.backward()
        for gradient in c.grads:
            with torch.no_grad():
                change(gradient)

    WAYS[name] = Way(run, *arguments, **options)


def replaced(name: str, new: Callable[[torch.Tensor], Any], *arguments: Any, **options: Any) -> None:
    """Add a way that sets another gradient after backward, made from a parameter."""

    def run(c: Program) -> None:
        c.backward()
        for parameter in c.w:
            with torch.no_grad():
                parameter.grad = new(parameter)

    WAYS[name] = Way(run, *arguments, **options)
