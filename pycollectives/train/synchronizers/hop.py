"""Hop: ranks average weights with their neighbors, which may be some iterations apart (Luo et al. 2019, Fig. 4).

A rank sends its weights, computes the gradient at them, and applies it to the average (section 3.2).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ...hop import modes
from ...hop.arguments import HopArguments
from .base import Outcome, Simulated, WeightSynchronizer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ...communicator import Communicator
    from ...hop.collective import Hop as Collective
    from ..models.base import Model
    from ..optimizers import Optimizer

DEFAULT_TOPOLOGY = "ring-based"
DEFAULT_MODE = "standard"
DEFAULT_MAX_IG = 5
DEFAULT_COMPUTATION = "parallel"
NO_END = 1 << 40
"""The number of steps: training ends earlier."""


class Hop(WeightSynchronizer):
    """Hop on the graph `topology`; `mode` is as in `hop.modes.parse`, other options are as in `Communicator.hop`."""

    def __init__(
        self,
        comm: Communicator,
        model: Model,
        *,
        topology: str = DEFAULT_TOPOLOGY,
        mode: str = DEFAULT_MODE,
        max_ig: int = DEFAULT_MAX_IG,
        computation: str = DEFAULT_COMPUTATION,
    ) -> None:
        super().__init__(comm)
        self._model = model
        kind, skip = modes.parse(mode)
        self._options: dict[str, Any] = {
            "topology": topology,
            "mode": kind,
            "max_ig": max_ig,
            "skip": skip,
            "computation": computation,
            "name": "weights",
        }
        make = partial(HopArguments, model.weights, **self._options)
        comm._context.checked(HopArguments.service, make)  # not in the first step
        self._joined: Collective | None = None
        self._iterations: Iterator[int] = iter(())
        self._first = 0  # the step that is Hop's iteration 0
        self._before = np.empty_like(model.weights)

    @classmethod
    def simulated(cls, **options: Any) -> Simulated:
        """Simulate Hop with the same queues and tokens."""
        mode, skip = modes.parse(options.get("mode", DEFAULT_MODE))
        arguments = {
            "topology": options.get("topology", DEFAULT_TOPOLOGY),
            "mode": mode,
            "max_ig": options.get("max_ig", DEFAULT_MAX_IG),
            "skip": skip,
            "computation": options.get("computation", DEFAULT_COMPUTATION),
        }
        return Simulated("hop", arguments)

    def begin(self, weights: NDArray[np.float32], number: int) -> int:
        """Send the weights to the neighbors; wait for tokens, and perhaps skip steps."""
        if self._joined is None:
            self._join(number)
        assert self._joined is not None
        k = next(self._iterations)
        np.copyto(weights, self._joined.parameters)  # renewed, if steps were skipped (section 5)
        return self._first + k

    def update(self, model: Model, optimizer: Optimizer, number: int) -> None:
        """Average the weights with the neighbors' weights, and add the update."""
        assert self._joined is not None
        np.copyto(self._before, model.weights)
        optimizer.update(model.weights, model.gradient, number)
        self._joined.step(np.subtract(model.weights, self._before, out=self._before))
        np.copyto(model.weights, self._joined.parameters)
        self.outcome = Outcome(active=1 + len(self._joined.received))

    def leave(self) -> None:
        """Leave: the neighbors continue without this rank, which may have no steps left."""
        if self._joined is None:
            self._join(0)
        assert self._joined is not None
        self._joined.leave()

    def rejoin(self) -> None:
        self._joined = None

    def close(self) -> None:
        if self._joined is not None:
            self._joined.leave()

    def _join(self, number: int) -> None:
        """Create the collective from the model's weights; collective. Step `number` is its iteration 0."""
        self._joined = self.comm.hop(self._model.weights, **self._options)
        self._iterations = self._joined.iterations(NO_END)
        self._first = number
