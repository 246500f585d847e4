"""D-PSGD: a rank averages weights with its neighbors while it computes the gradient (Lian et al. 2017, Algorithm 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...topology.names import by_name
from .base import Outcome, WeightSynchronizer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ...communicator import Communicator
    from ...neighbor_averaging.d_psgd import NeighborAveraging
    from ..models.base import Model
    from ..optimizers import Optimizer


class DPsgd(WeightSynchronizer):
    """D-PSGD; `topology` is a name in `pycollectives.topology.NAMES`, and `weights` is the graph's kind of weights."""

    def __init__(
        self, comm: Communicator, model: Model, *, topology: str = "ring", weights: str = "metropolis"
    ) -> None:
        super().__init__(comm)
        self._model = model
        self._topology = by_name(topology, comm.size)
        self._kind = weights
        self._averaging = self._join()

    def begin(self, weights: NDArray[np.float32], number: int) -> int:
        """Send the neighbors the weights at which this rank computes its gradient."""
        self._step = self._averaging.start(weights)
        return number

    def update(self, model: Model, optimizer: Optimizer, number: int) -> None:
        """Average the weights with the neighbors' weights, and apply the gradient to the average."""
        step = self._step.wait(out=model.weights).step
        self.outcome = Outcome(active=1 + len(self._topology.at(step).in_neighbors(self.comm.rank)))
        optimizer.update(model.weights, model.gradient, number)

    def leave(self) -> None:
        self._averaging.leave()

    def rejoin(self) -> None:
        self._averaging = self._join()

    def close(self) -> None:
        self._averaging.leave()

    def _join(self) -> NeighborAveraging:
        return self.comm.neighbor_averaging(
            self._model.weights, topology=self._topology, weights=self._kind, name="weights"
        )
