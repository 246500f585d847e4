"""PyTorch's DistributedDataParallel over gloo, for comparison: gradients are averaged during the backward pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...policies import Full
from ..reductions import any_of
from .base import Outcome, Simulated, Synchronizer

if TYPE_CHECKING:
    from ...communicator import Communicator
    from ..models.base import Model


class Ddp(Synchronizer):
    """DistributedDataParallel, for PyTorch models only."""

    in_step = True
    needs_equal_steps = True
    can_lose_ranks = False  # its process group cannot
    waits_while_computing = True

    def __init__(self, comm: Communicator, model: Model) -> None:
        from ..torch_models.parallel import Distributed

        self._distributed = Distributed(comm.mpi_comm, model)
        self._comm = comm.mpi_comm
        self.outcome = Outcome(active=comm.size)

    @classmethod
    def why_staged(cls) -> str:
        """Return an empty text: gloo accepts gradients on a device, and copies them through the host itself."""
        return ""

    @classmethod
    def simulated(cls, **options: Any) -> Simulated:
        return Simulated("allreduce", {"policy": Full()})

    def agree(self, stop: bool) -> bool:
        """Return whether any rank must stop: other ranks would wait for that rank in the next step."""
        return any_of(self._comm, stop)

    def close(self) -> None:
        self._distributed.close()
