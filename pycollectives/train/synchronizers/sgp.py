"""SGP: a rank gives shares of its weights to its out-neighbors after each update (Assran et al. 2019, Algorithm 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...topology.names import by_name
from .base import Outcome, WeightSynchronizer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ...communicator import Communicator
    from ...neighbor_averaging.push_sum import PushSum
    from ..models.base import Model
    from ..optimizers import Optimizer


class Sgp(WeightSynchronizer):
    """SGP; `topology` is a name in `pycollectives.topology.NAMES`, and `overlap` is 0 or 1 step.

    The model's weights are de-biased: ranks compute gradients at them. The update is added to this rank's
    sum without scaling.
    """

    def __init__(
        self, comm: Communicator, model: Model, *, topology: str = "one-peer-exponential", overlap: int = 0
    ) -> None:
        super().__init__(comm)
        self._model = model
        self._topology = by_name(topology, comm.size)
        self._overlap = overlap
        self._push_sum = self._join()

    def average(self, weights: NDArray[np.float32], number: int) -> None:
        """Send shares, and add the shares that have arrived."""
        step = self._push_sum.average(weights).step
        self.outcome = Outcome(active=1 + len(self._topology.at(step).in_neighbors(self.comm.rank)))

    def part(self, weights: NDArray[np.float32]) -> tuple[NDArray[np.float32], float]:
        """Return the de-biased weights, and the weight of this rank's sum."""
        return weights, self._push_sum.weight

    def leave(self) -> None:
        """Leave: the neighbors continue without this rank, which keeps its sum."""
        self._push_sum.leave()

    def flush(self, model: Model, optimizer: Optimizer, number: int) -> None:
        """Add the shares that were sent to this rank."""
        if self._push_sum.steps:
            self._push_sum.final(model.weights)

    def equalize(self, weights: NDArray[np.float32]) -> None:
        """Give every rank the mean of all sums, which is the weighted mean of all ranks' models."""
        scaled = weights * self._push_sum.weight  # if a rank dies in the call, the weights stay as they are
        super().equalize(scaled)
        weights[...] = scaled

    def rejoin(self) -> None:
        self._push_sum = self._join()

    def close(self) -> None:
        self._push_sum.leave()

    def _join(self) -> PushSum:
        return self.comm.push_sum(self._model.weights, topology=self._topology, overlap=self._overlap, name="weights")
