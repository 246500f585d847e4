"""AD-PSGD: a rank's weights are averaged with one neighbor at a time while it computes (Lian et al. 2018, Algorithm 1).

A rank reads x' from the library, computes the gradient at x', and adds the optimizer's step to the current
model. No rank waits for another one.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from ...neighbor_averaging.arguments import PairwiseArguments
from ...support.device_arrays import why_staged
from ..arrays import module_of
from .base import Outcome, Simulated, Synchronizer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ...communicator import Communicator
    from ...neighbor_averaging.pairwise import PairwiseAveraging
    from ..models.base import Model
    from ..optimizers import Optimizer


class AdPsgd(Synchronizer):
    """AD-PSGD on the symmetric graph `topology`; other options are as in `Communicator.pairwise_averaging`."""

    def __init__(
        self,
        comm: Communicator,
        model: Model,
        *,
        topology: str = "bipartite-exponential",
        pace: Literal["continuous", "per_step"] = "continuous",
        acceleration: Literal["a2cid2"] | None = None,
        seed: int = 0,
    ) -> None:
        self._comm = comm
        self._model = model
        self._options: dict[str, Any] = {
            "topology": topology,
            "pace": pace,
            "acceleration": acceleration,
            "seed": seed,
            "name": "weights",
        }
        make = partial(PairwiseArguments, model.weights, **self._options)
        comm._context.checked(PairwiseArguments.service, make)  # not in the first step
        self._averaging: PairwiseAveraging | None = None
        self._arrays = module_of(model.weights)
        self._before = self._arrays.empty_like(model.weights)
        self._averages = 0  # that included this rank's weights by the time they were read

    @classmethod
    def why_staged(cls) -> str:
        return why_staged()

    @classmethod
    def simulated(cls, **options: Any) -> Simulated:
        """Simulate ranks that never wait for each other."""
        return Simulated("pairwise_averaging", {})

    def begin(self, weights: NDArray[np.float32], number: int) -> int:
        """Read x', at which this rank computes its gradient."""
        averaging = self._joined()
        averaging.read(weights)
        self._averages = averaging.statistics().exchanges
        return number

    def update(self, model: Model, optimizer: Optimizer, number: int) -> None:
        """Add the update at x' to the current weights."""
        averaging = self._joined()
        self._before[...] = model.weights
        optimizer.update(model.weights, model.gradient, number)
        averaging.apply(self._arrays.subtract(model.weights, self._before, out=self._before))
        missed = averaging.statistics().exchanges - self._averages
        self.outcome = Outcome(active=2 if missed else 1, missed=missed)

    def part(self, weights: NDArray[np.float32]) -> tuple[NDArray[np.float32], float]:
        """Return the weights, as averaged since this rank read them, and the same share as every rank."""
        current = self._arrays.empty_like(weights)
        self._joined().read(current)
        return current, 1.0

    def leave(self) -> None:
        """Do nothing: no rank waits for this one. Neighbors continue to average with this rank's weights."""
        self._joined()

    def equalize(self, weights: NDArray[np.float32]) -> None:
        averaging = self._joined()
        averaging.equalize()
        averaging.read(weights)

    def close(self) -> None:
        if self._averaging is not None:
            self._averaging.leave()

    def _joined(self) -> PairwiseAveraging:
        """Return the collective. The first call makes it from the current weights, on all ranks together."""
        if self._averaging is None:
            self._averaging = self._comm.pairwise_averaging(self._model.weights, **self._options)
        return self._averaging


class A2cid2(AdPsgd):
    """AD-PSGD with momentum between averages, for graphs in which averages spread slowly (Nabli et al. 2023)."""

    def __init__(
        self,
        comm: Communicator,
        model: Model,
        *,
        topology: str = "bipartite-exponential",
        pace: Literal["continuous", "per_step"] = "continuous",
        acceleration: Literal["a2cid2"] | None = "a2cid2",
        seed: int = 0,
    ) -> None:
        super().__init__(comm, model, topology=topology, pace=pace, acceleration=acceleration, seed=seed)
