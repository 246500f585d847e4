"""What cannot be wrapped, told by name before anything is sent."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import TYPE_CHECKING, Protocol

import torch

from .parameters import check_tensor, name_of, parameters_of
from .wrapped import WrappedOptimizer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = [
    "OpenWrappers",
    "Wrapper",
    "check_model",
    "check_no_ddp",
    "check_optimizer",
    "open_optimizers",
    "open_wrappers",
]

OPEN_ONES = "; pycollectives.torch.open_optimizers() lists those that are open"
DDP = "DistributedDataParallel"


class Wrapper(Protocol):
    """An optimizer around another one."""

    optimizer: torch.optim.Optimizer

    @property
    def name(self) -> str:
        """In messages."""

    @property
    def closed(self) -> bool:
        """Whether it takes part in nothing any more."""

    def close(self, *, timeout: float | None = None) -> None:
        """Flush and leave; collective."""


class OpenWrappers:
    """The optimizers of this process that are wrapped and open: a parameter is in one of them only."""

    def __init__(self) -> None:
        """Start with none."""
        self._lock = threading.Lock()
        self._wrappers: weakref.WeakSet[Wrapper] = weakref.WeakSet()

    def admit(self, wrapper: Wrapper) -> None:
        """Admit one, or one again that has more parameters; `ValueError` if what it wraps is in another one."""
        with self._lock:
            for other in self._wrappers:
                if other is not wrapper and not other.closed:
                    _check_apart(wrapper.optimizer, other)
            self._wrappers.add(wrapper)

    def open(self) -> list[Wrapper]:
        """Return those that are open."""
        with self._lock:
            return [wrapper for wrapper in self._wrappers if not wrapper.closed]


open_wrappers = OpenWrappers()
"""Of this process."""


def open_optimizers() -> list[Wrapper]:
    """Return the optimizers of this process that are wrapped and not closed, such as one whose name was used again.

    An open one lives as long as its parameters, and they can be in no other one. To leave it, call its `close()` on all
    ranks.
    """
    return open_wrappers.open()


def _check_apart(optimizer: torch.optim.Optimizer, other: Wrapper) -> None:
    if optimizer is other.optimizer:
        raise ValueError(
            f"optimizer: expected one that is not wrapped; this {type(optimizer).__name__} is, by {other.name!r}: use "
            f"that one, or close() it before{OPEN_ONES}"
        )
    theirs = set(map(id, _trainable(other.optimizer)))
    for parameter in _trainable(optimizer):
        if id(parameter) in theirs:
            raise ValueError(
                f"optimizer: its parameter {name_of(optimizer, parameter)} is also one of {other.name!r}, which is "
                f"open: wrap one optimizer with all parameters, or close() the other one before{OPEN_ONES}"
            )


def _trainable(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    return (parameter for parameter in parameters_of(optimizer.param_groups) if parameter.requires_grad)


def check_optimizer(optimizer: torch.optim.Optimizer) -> None:
    """Refuse, by `TypeError`, what is no optimizer, is wrapped already, or evaluates the model several times a step."""
    if isinstance(optimizer, (torch.optim.LBFGS, WrappedOptimizer)):
        raise TypeError(f"optimizer: {type(optimizer).__name__} is refused: expected one that uses each gradient once")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"optimizer: expected a torch.optim.Optimizer, got {type(optimizer).__name__}")


def check_no_ddp(parameters: Iterable[torch.Tensor]) -> None:
    """Refuse parameters whose gradients torch averages already.

    They do not show it: the hooks are in C++. So the models are looked for, where there is a process group at all.
    """
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return
    ours = set(map(id, parameters))
    for thing in gc.get_objects():
        if issubclass(type(thing), torch.nn.parallel.DistributedDataParallel) and any(
            id(one) in ours for one in thing.parameters()
        ):
            raise ValueError(
                f"optimizer: its parameters are those of a {DDP}, which averages their gradients itself: leave the "
                "model as it is, and do not wrap it"
            )


def check_model(model: torch.nn.Module | None) -> None:
    """Refuse what is no plain module that has shapes."""
    if model is None:
        return
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model: expected a torch.nn.Module, got {type(model).__name__}")
    if any(isinstance(module, torch.nn.parallel.DistributedDataParallel) for module in model.modules()):
        raise ValueError(f"model: expected a plain module, got a {DDP}, which averages gradients itself")
    for kind, tensors in (("parameter", model.named_parameters()), ("buffer", model.named_buffers())):
        for name, tensor in tensors:
            check_tensor(f"model: {kind} {name!r}", tensor)
