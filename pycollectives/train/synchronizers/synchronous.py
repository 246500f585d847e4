"""Synchronous SGD: every step waits for every rank (eager-SGD, Algorithm 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from ...policies import Full
from ..reductions import any_of, check_alive
from .base import GradientSynchronizer, Outcome, Simulated

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...communicator import Communicator
    from ..models.base import Model


class Synchronous(GradientSynchronizer):
    """Synchronous SGD: MPI_Allreduce averages the gradients."""

    in_step = True
    needs_equal_steps = True

    def __init__(self, comm: Communicator, model: Model) -> None:
        self._comm = comm.mpi_comm
        self._sum = np.empty_like(model.gradient)
        self.outcome = Outcome(active=comm.size)

    def combine(self, gradient: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the mean gradient of all ranks."""
        self._comm.Allreduce(gradient, self._sum, MPI.SUM)
        check_alive(self._comm)
        self._sum /= self._comm.size
        return self._sum

    @classmethod
    def simulated(cls, **options: Any) -> Simulated:
        return Simulated("allreduce", {"policy": Full()})

    def agree(self, stop: bool) -> bool:
        """Return whether any rank must stop: other ranks would wait for that rank in the next step."""
        return any_of(self._comm, stop)
