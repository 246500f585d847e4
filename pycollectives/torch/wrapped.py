"""A torch optimizer that wraps another one and shares its parameters, state and hooks."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.utils.hooks import RemovableHandle


class WrappedOptimizer(torch.optim.Optimizer):
    """Has the parameters, state and hooks of the optimizer that it wraps; a derived class sets `optimizer` first.

    `torch.optim.Optimizer.__init__` is not called, since this class has no parameters of its own.
    """

    optimizer: torch.optim.Optimizer

    _OF_THE_WRAPPED = frozenset({"param_groups", "state", "defaults"})

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """The wrapped optimizer's class, so that `isinstance(self, torch.optim.SGD)` is True too."""
        return type(self.__dict__.get("optimizer", self))

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the wrapped optimizer: `param_groups`, `state`, `defaults`, hooks."""
        if name == "optimizer":
            raise AttributeError(name)  # not yet made
        return getattr(self.optimizer, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Assign `param_groups`, `state` and `defaults` to the wrapped optimizer."""
        if name in self._OF_THE_WRAPPED:
            setattr(self.optimizer, name, value)
        else:
            super().__setattr__(name, value)

    def state_dict(self) -> dict[str, Any]:
        """Return the wrapped optimizer's state; call `flush` first. It contains no communication state."""
        return self.optimizer.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the wrapped optimizer's state."""
        self.optimizer.load_state_dict(state_dict)

    def _with_this(self, hook: Callable[..., Any]) -> Callable[..., Any]:
        """Return a hook for the wrapped optimizer that receives this optimizer as its argument."""

        @functools.wraps(hook)
        def called(_wrapped: torch.optim.Optimizer, *arguments: Any) -> Any:
            return hook(self, *arguments)

        return called

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Register a hook that runs before each step of the wrapped optimizer, with averages in `.grad`."""
        return self.optimizer.register_step_pre_hook(self._with_this(hook))

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Register a hook that runs after each step of the wrapped optimizer."""
        return self.optimizer.register_step_post_hook(self._with_this(hook))

    def register_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        return self.optimizer.register_state_dict_pre_hook(self._with_this(hook), prepend)

    def register_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        return self.optimizer.register_state_dict_post_hook(self._with_this(hook), prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        return self.optimizer.register_load_state_dict_pre_hook(self._with_this(hook), prepend)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        return self.optimizer.register_load_state_dict_post_hook(self._with_this(hook), prepend)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Raise `TypeError`: a copy would take part in the same collectives."""
        name = type(self).__name__
        raise TypeError(
            f"{name} cannot be copied or pickled, since it takes part in collectives: save state_dict(), or copy the "
            "optimizer that it wraps"
        )
