"""Warn about state that differs between ranks although gradients or parameters are averaged."""

from __future__ import annotations

import gc
import warnings
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_NAMES = 6


def is_adaptive(optimizer: torch.optim.Optimizer) -> bool:
    """Whether one step with the sum of two gradients differs permanently from two steps, unlike with SGD."""
    return not isinstance(optimizer, torch.optim.SGD)


def _with_running_statistics(parameters: Iterable[torch.Tensor], model: torch.nn.Module | None) -> str:
    """Return the names of modules, such as BatchNorm, that own some of `parameters` but are not in `model`.

    PyTorch does not record a parameter's module, so all modules of the process are searched. A module's name is from
    the largest module that contains it. Modules without parameters (`affine=False`) are not found.
    """
    ours = set(map(id, parameters))
    known = set() if model is None else set(map(id, model.modules()))
    modules = [thing for thing in gc.get_objects() if issubclass(type(thing), torch.nn.Module)]
    found = {
        id(module): type(module).__name__
        for module in modules
        if id(module) not in known
        and getattr(module, "running_mean", None) is not None
        and any(id(one) in ours for one in module.parameters(recurse=False))
    }
    if not found:
        return ""
    for root in sorted(modules, key=lambda module: len(list(module.modules()))):
        found |= {id(module): name for name, module in root.named_modules() if name and id(module) in found}
    names = list(found.values())
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def warn_of_running_statistics(name: str, parameters: Iterable[torch.Tensor], model: torch.nn.Module | None) -> None:
    """Warn about modules with running statistics that are not in `model`; called at creation of the optimizer."""
    if modules := _with_running_statistics(parameters, model):
        warnings.warn(
            f"{name}: running statistics of {modules} are not averaged, so ranks evaluate different models. Pass "
            "model=model, so that finish() and average_buffers() average the statistics",
            RuntimeWarning,
            stacklevel=4,
        )
