"""The programs that survivors continue. Each makes steps, and checks at its end that no value was lost or mixed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from .cli import RunError

if TYPE_CHECKING:
    import pycollectives as pc

    from .policies import PolicyName

COUNT = 1024
"""Elements of a model."""


class Program(Protocol):
    """A program whose ranks may die."""

    def step(self) -> None:
        """Make a step; return when it is complete on this rank."""

    def end(self) -> None:
        """End; collective. RunError if a value was wrong."""

    def state(self) -> object:
        """Return the state for a rank that replaces a dead one, unless the library passes it."""

    def restore(self, state: Any) -> None:
        """Continue in the place of a dead rank."""


def load_libraries(name: str) -> None:
    """Import the libraries of a program. As in a user's program, a spare has them before it is needed."""
    if name == "optimizer":
        import pycollectives.torch  # noqa: F401


def make_program(name: str, comm: pc.Communicator, policy: PolicyName) -> Program:
    """Make a program; collective."""
    if name == "allreduce":
        return _Allreduce(comm, policy)
    if name == "optimizer":
        return _Optimizer(comm, policy)
    if name == "hop":
        return _Hop(comm)
    if name == "server":
        return _Server(comm)
    return _Steps(comm, {"groups": "partial_reduce", "gossip": "neighbor_averaging"}[name])


class _Allreduce:
    """Every contribution of a survivor is in one round."""

    def __init__(self, comm: pc.Communicator, policy: PolicyName) -> None:
        self._comm = comm
        self._mine = np.zeros(comm.size, np.int64)
        self._mine[comm.rank] = 1
        self._total, self._made, self._is_new = np.zeros_like(self._mine), 0, False
        self._collective = comm.partial_allreduce(self._mine, policy=policy.build(0), missed="sum")

    def step(self) -> None:
        result, _ = self._collective.allreduce(self._mine)
        self._total, self._made = self._total + result, self._made + 1

    def end(self) -> None:
        self._collective.flush()
        self._total += self._collective.result
        self._collective.leave()
        is_wrong = not self._is_new and self._total[self._comm.rank] != self._made
        if is_wrong or not self._comm.is_same_on_all_ranks(self._total):
            raise RunError(
                f"rank {self._comm.rank} made {self._made} contributions, and the survivors received "
                f"{self._total.tolist()}"
            )

    def state(self) -> object:
        return self._total

    def restore(self, state: Any) -> None:
        self._total, self._is_new = state, True


class _Restored:
    """A program whose state the library passes to a rank that replaces a dead one."""

    def state(self) -> object:
        return None

    def restore(self, state: Any) -> None:
        pass


class _Optimizer(_Restored):
    """Models are the same at the end, but for rounding."""

    def __init__(self, comm: pc.Communicator, policy: PolicyName) -> None:
        import torch

        from pycollectives.torch import EagerOptimizer

        self._comm = comm
        self._model = torch.nn.Linear(COUNT, 1, bias=False)
        self._input = torch.ones(COUNT)
        inner = torch.optim.SGD(self._model.parameters(), lr=0.1 / COUNT)
        self._optimizer = EagerOptimizer(inner, comm, policy=policy.build(0))

    def step(self) -> None:
        self._optimizer.zero_grad()
        (self._model(self._input) - 1).square().sum().backward()
        self._optimizer.step()

    def end(self) -> None:
        self._optimizer.finish()
        weights = self._model.weight.detach().numpy()
        distance = np.abs(weights - self._comm.mean(weights)).max()
        if not distance < 1e-4:
            raise RunError(f"rank {self._comm.rank}: the models differ by {distance:g}")


class _Averages:
    """All elements of a model are equal, and in the range of the initial models."""

    def __init__(self, comm: pc.Communicator) -> None:
        self._comm = comm
        self._model = np.full(COUNT, float(comm.rank))

    def end(self) -> None:
        low, high = self._model.min(), self._model.max()
        if low != high or not -1e-9 <= low <= self._comm.size - 1 + 1e-9:
            raise RunError(f"rank {self._comm.rank}: the model has values from {low} to {high}")


class _Steps(_Averages):
    """Averages in place, by `partial_reduce` or `neighbor_averaging`."""

    def __init__(self, comm: pc.Communicator, service: str) -> None:
        super().__init__(comm)
        self._collective = getattr(comm, service)(self._model)

    def step(self) -> None:
        self._collective.average(self._model)

    def end(self) -> None:
        self._collective.leave()
        super().end()

    def state(self) -> object:
        return self._model

    def restore(self, state: Any) -> None:
        self._model[:] = state


class _Hop(_Averages, _Restored):
    def __init__(self, comm: pc.Communicator) -> None:
        super().__init__(comm)
        self._collective = comm.hop(self._model, topology="ring")
        self._zeros = np.zeros(COUNT)

    def step(self) -> None:
        next(self._collective.iterations(1))
        self._collective.step(self._zeros)

    def end(self) -> None:
        self._model = self._collective.parameters.copy()
        self._collective.leave()
        super().end()


class _Server(_Restored):
    """The mean of gradients of ones is 1, so that all weights are the number of updates."""

    def __init__(self, comm: pc.Communicator) -> None:
        from pycollectives.servers import SGD

        self._comm = comm
        self._weights, self._ones = np.zeros(COUNT), np.ones(COUNT)
        self._collective = comm.parameter_server(self._weights, servers="node", update=SGD(1.0))

    def step(self) -> None:
        self._collective.push_pull(self._ones, self._weights)

    def end(self) -> None:
        updates = self._collective.version
        self._collective.leave()
        if np.abs(self._weights + updates).max() > 1e-6 * updates:
            raise RunError(f"rank {self._comm.rank}: after {updates} updates the weights are {self._weights}")
