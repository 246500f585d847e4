"""A parameter server: ranks push their updates, and pull the current weights (Zhao et al. 2021).

A rank computes the gradient at the weights that it received last. It applies its update rule, with its own momentum
and the schedule's rate, pushes the change, and the server subtracts it. Every rule and schedule works, and checkpoints
hold their state. With BSP and a rule that is linear in the gradient this is SGD on the whole batch.

Rejected: the rule on the server, which has one rate and thus no schedule, and whose state is in no checkpoint.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...servers import sync as synchronizations
from ...servers.update import SGD
from ..reductions import broadcast
from ..values import Size  # noqa: TC001 - the registry evaluates it
from .base import Outcome, Simulated, Synchronizer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...communicator import Communicator
    from ...servers.collective import ParameterServer as Collective
    from ..models.base import Model
    from ..optimizers import Optimizer

DEFAULT_SYNC = "bsp"
DEFAULT_PERIOD = 4


class Served(Synchronizer):
    """A method whose weights are on servers. All ranks are workers, and take steps at their own pace."""

    def __init__(self, comm: Communicator, model: Model, **options: Any) -> None:
        self._comm = comm
        self._model = model
        self._options = {"workers": range(comm.size), "nan": "accept", "name": "weights", **options}
        self._joined: Collective | None = None

    @classmethod
    def for_fewer(cls, ranks: int, **options: Any) -> dict[str, Any]:
        servers = options.get("servers")
        return {**options, "servers": min(servers, ranks)} if isinstance(servers, int) else options

    def begin(self, weights: NDArray[np.float32], number: int) -> int:
        """Join the server in the first step. This rank computes the gradient at the weights that it received last."""
        self._join()
        return number

    def leave(self) -> None:
        self._join().suspend()

    def equalize(self, weights: NDArray[np.float32]) -> None:
        """Give every rank the server's weights."""
        self._join().pull(weights)
        broadcast(self._comm.mpi_comm, weights)

    def rejoin(self) -> None:
        self.close()
        self._joined = None

    def close(self) -> None:
        if self._joined is not None:
            self._joined.leave()

    def _join(self) -> Collective:
        """Return the server. The first call is collective and creates it from the current weights."""
        if self._joined is None:
            self._joined = self._comm.parameter_server(self._model.weights, **self._options)
        return self._joined


class ParameterServer(Served):
    """A server; `sync` is as in `pycollectives.servers.parse`, `servers` is the number of serving ranks or "node"."""

    def __init__(
        self, comm: Communicator, model: Model, *, sync: str = DEFAULT_SYNC, servers: int | str = "node"
    ) -> None:
        kind = _patient(sync)
        if isinstance(kind, synchronizations.EAMSGD):
            raise ValueError(
                f"sync: expected a synchronization in which ranks push gradients, got {sync!r}: use the method eamsgd"
            )
        super().__init__(comm, model, sync=kind, update=SGD(rate=1.0), servers=servers)
        self._is_lockstep = isinstance(kind, synchronizations.BSP)
        self._change = np.empty_like(model.weights)

    @classmethod
    def simulated(cls, **options: Any) -> Simulated:
        """Simulate the synchronization; as in training, a rank learns after computing if its gradient is in time."""
        sync = _patient(options.get("sync", DEFAULT_SYNC))
        return Simulated("parameter_server", {"sync": sync, "gives_up": False})

    def update(self, model: Model, optimizer: Optimizer, number: int) -> None:
        """Push this rank's update, and pull the current weights."""
        np.copyto(self._change, model.weights)
        optimizer.update(model.weights, model.gradient, number)
        self._change -= model.weights
        server = self._join()
        before = server.version
        if server.is_in_time():
            server.push_pull(self._change, model.weights)
        else:
            server.give_up()
            server.pull(model.weights)
        push = server.last_push
        assert push is not None
        ranks = self._comm.size
        active = ranks if self._is_lockstep else min(ranks, max(1, server.version - before))
        self.outcome = Outcome(active, late=not push.used, missed=push.staleness)


def _patient(sync: str) -> synchronizations.Synchronization:
    """Return the synchronization for a string, with no limit on the time that ranks wait for a slow rank."""
    kind = synchronizations.parse(sync)
    return replace(kind, patience=math.inf) if isinstance(kind, synchronizations.Patient) else kind


class Eamsgd(Served):
    """Elastic averaging: each rank trains alone, but every `period` steps, its weights and a center move closer.

    Zhang et al. 2015, Algorithm 2. Each moves by the fraction `alpha` of their distance, by default 0.9 over the number
    of ranks, as in the paper. When replicas are made equal, they become the center.
    """

    def __init__(
        self,
        comm: Communicator,
        model: Model,
        *,
        period: Size = DEFAULT_PERIOD,
        alpha: float | None = None,
        servers: int | str = "node",
    ) -> None:
        kind = synchronizations.EAMSGD(period, 0.9 / comm.size if alpha is None else alpha)
        super().__init__(comm, model, sync=kind, servers=servers)
        self._period = period

    @classmethod
    def simulated(cls, **options: Any) -> Simulated:
        """Simulate exchanges with the same period; `alpha` has no effect on times, since no rank waits."""
        sync = synchronizations.EAMSGD(options.get("period", DEFAULT_PERIOD), options.get("alpha", 0.5))
        return Simulated("parameter_server", {"sync": sync})

    def update(self, model: Model, optimizer: Optimizer, number: int) -> None:
        """Apply this rank's gradient; every `period` steps, average with the center."""
        optimizer.update(model.weights, model.gradient, number)
        self.outcome = Outcome()
        if (number + 1) % self._period == 0:
            server = self._join()
            before = server.version
            server.push_pull(model.weights, model.weights)
            self.outcome = Outcome(active=min(self._comm.size, max(1, server.version - before)))

    def part(self, weights: NDArray[np.float32]) -> tuple[NDArray[np.float32], float] | None:
        """Return the center on rank 0, and None on other ranks."""
        if self._comm.rank > 0:
            return None
        center = np.empty_like(weights)
        self._join().pull(center)
        return center, 1.0
