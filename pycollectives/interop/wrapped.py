"""A torch optimizer around another one: whatever a program reads from it, or assigns to it, is the other's."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["WrappedOptimizer"]


class WrappedOptimizer(torch.optim.Optimizer):
    """Has the parameters, state and hooks of the optimizer that it wraps; a derived class sets `optimizer` first.

    `torch.optim.Optimizer.__init__` is not called: there is nothing of this one's own.
    """

    optimizer: torch.optim.Optimizer

    _OF_THE_WRAPPED = frozenset({"param_groups", "state", "defaults"})

    def __getattr__(self, name: str) -> Any:
        """Return the wrapped optimizer's attribute: `param_groups`, `state`, `defaults`, hooks."""
        if name == "optimizer":
            raise AttributeError(name)  # not yet made
        return getattr(self.optimizer, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Assign to the wrapped optimizer what is its own."""
        if name in self._OF_THE_WRAPPED:
            setattr(self.optimizer, name, value)
        else:
            super().__setattr__(name, value)

    def state_dict(self) -> dict[str, Any]:
        """Return the wrapped optimizer's state: nothing of it is about communication. `flush` before."""
        return self.optimizer.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the wrapped optimizer's state."""
        self.optimizer.load_state_dict(state_dict)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refuse to be copied or pickled: copies would take part in the same collectives."""
        name = type(self).__name__
        raise TypeError(
            f"{name} cannot be copied or pickled, since it takes part in collectives: save state_dict(), or copy the "
            "optimizer that it wraps"
        )
