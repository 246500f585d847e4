"""Refuse optimizers and models that cannot be wrapped, before any message is sent."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import TYPE_CHECKING, Protocol

import torch

from .parameters import check_tensor, name_of, parameters_of
from .wrapped import WrappedOptimizer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from torch.optim.lr_scheduler import LRScheduler

OPEN_ONES = "; pycollectives.torch.open_optimizers() lists the open optimizers"
DDP = "DistributedDataParallel"


class Wrapper(Protocol):
    """An optimizer that wraps another optimizer."""

    optimizer: torch.optim.Optimizer

    @property
    def name(self) -> str:
        """The optimizer's name in messages."""

    @property
    def closed(self) -> bool:
        """Whether the optimizer has left all collectives."""

    def close(self, *, timeout: float | None = None) -> None:
        """Flush, then leave all collectives; called by all ranks."""


class OpenWrappers:
    """The open wrappers of this process; a parameter is in at most one of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wrappers: weakref.WeakSet[Wrapper] = weakref.WeakSet()

    def admit(self, wrapper: Wrapper) -> None:
        """Register a wrapper that is new or has new parameters; `ValueError` if another wrapper has one of them."""
        with self._lock:
            for other in self._wrappers:
                if other is not wrapper and not other.closed:
                    _check_apart(wrapper.optimizer, other)
            self._wrappers.add(wrapper)

    def open(self) -> list[Wrapper]:
        """Return the open wrappers."""
        with self._lock:
            return [wrapper for wrapper in self._wrappers if not wrapper.closed]


open_wrappers = OpenWrappers()
"""The open wrappers of this process."""


def open_optimizers() -> list[Wrapper]:
    """Return the open optimizers of this process, including those that no variable refers to anymore.

    An open optimizer lives as long as its parameters, which no other optimizer can use. To free them, call its
    `close()` on all ranks.

    Returns
    -------
    list
        The `EagerOptimizer` and `DecentralizedOptimizer` objects that are not closed.
    """
    return open_wrappers.open()


def _check_apart(optimizer: torch.optim.Optimizer, other: Wrapper) -> None:
    if optimizer is other.optimizer:
        raise ValueError(
            f"optimizer: expected an unwrapped optimizer, got {type(optimizer).__name__} wrapped by {other.name!r}: "
            f"use that wrapper, or close() it first{OPEN_ONES}"
        )
    theirs = set(map(id, _trainable(other.optimizer)))
    for parameter in _trainable(optimizer):
        if id(parameter) in theirs:
            raise ValueError(
                f"optimizer: its parameter {name_of(optimizer, parameter)} is also in {other.name!r}, which is open: "
                f"wrap one optimizer with all parameters, or close() the other one first{OPEN_ONES}"
            )


def _trainable(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    return (parameter for parameter in parameters_of(optimizer.param_groups) if parameter.requires_grad)


def check_optimizer(optimizer: torch.optim.Optimizer) -> None:
    """Raise `TypeError` unless this is an unwrapped optimizer that evaluates the model once per step."""
    if isinstance(optimizer, (torch.optim.LBFGS, WrappedOptimizer)):
        raise TypeError(
            "optimizer: expected an unwrapped optimizer that evaluates the model once per step, got "
            f"{type(optimizer).__name__}"
        )
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"optimizer: expected a torch.optim.Optimizer, got {type(optimizer).__name__}")


def check_schedulers(schedulers: Sequence[LRScheduler], optimizer: torch.optim.Optimizer) -> None:
    """Raise `ValueError` unless all schedulers are learning-rate schedulers of the wrapped optimizer."""
    for scheduler in schedulers:
        if getattr(scheduler, "optimizer", None) is not optimizer:
            name = type(scheduler).__name__
            what = f"{name} of another optimizer" if hasattr(scheduler, "optimizer") else repr(scheduler)
            raise ValueError(f"schedulers: expected learning-rate schedulers of the wrapped optimizer, got {what}")


def check_no_ddp(parameters: Iterable[torch.Tensor]) -> None:
    """Raise `ValueError` for parameters of a `DistributedDataParallel` model, which averages their gradients itself.

    Parameters do not reveal such a model, since its hooks are in C++. If there is a process group, all objects are
    searched for it.
    """
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return
    ours = set(map(id, parameters))
    for thing in gc.get_objects():
        if issubclass(type(thing), torch.nn.parallel.DistributedDataParallel) and any(
            id(one) in ours for one in thing.parameters()
        ):
            raise ValueError(
                f"optimizer: its parameters belong to a {DDP}, which averages their gradients itself: do not "
                "wrap the model in it"
            )


def check_model(model: torch.nn.Module | None) -> None:
    """Raise an error unless `model` is None, or a plain module whose tensors have shapes."""
    if model is None:
        return
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model: expected a torch.nn.Module, got {type(model).__name__}")
    if any(isinstance(module, torch.nn.parallel.DistributedDataParallel) for module in model.modules()):
        raise ValueError(f"model: expected a plain module, got a {DDP}, which averages gradients itself")
    for kind, tensors in (("parameter", model.named_parameters()), ("buffer", model.named_buffers())):
        for name, tensor in tensors:
            check_tensor(f"model: {kind} {name!r}", tensor)
