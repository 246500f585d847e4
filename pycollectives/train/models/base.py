"""The interface of every model for the training loop and the synchronizers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from ..datasets.base import Examples


class Score(NamedTuple):
    """The loss and the accuracy of a model on a set of examples."""

    loss: float
    """Mean over the examples."""
    accuracy: float | None
    """Fraction of the examples whose class is predicted correctly; None: the model is not a classifier."""


class Model(ABC):
    """One replica.

    A model is made from the data set, which defines its shapes, and from options such as `seed`: `MLP(dataset,
    hidden=64, seed=1)`. The same seed gives the same weights on every rank.
    """

    runs_on_devices: ClassVar[bool] = False
    """Whether it can compute on a CUDA device; then it has `move_to`, see `torch_models.network.TorchModel`."""

    weights: NDArray[np.float32]
    """Every trained parameter, flat and C-contiguous; updated in place by others.

    For a model whose memory is on a device, it is a flat PyTorch tensor; `train.arrays` has the functions that differ.
    """
    gradient: NDArray[np.float32]
    """The gradient with respect to `weights`, of the same shape."""

    @abstractmethod
    def forward(self, *batch: NDArray[Any]) -> float:
        """Return the mean loss of a batch, and keep the data that `backward` needs."""

    @abstractmethod
    def backward(self) -> None:
        """Write the gradient of the last `forward`'s loss into `gradient`."""

    @abstractmethod
    def evaluate(self, *examples: Examples) -> Score:
        """Score a set of examples, without changing the model or its running statistics."""

    def state(self) -> dict[str, NDArray[Any]]:
        """Return copies of the arrays that a checkpoint must hold besides the weights, such as running statistics.

        When replicas are made equal, an array that differs between ranks becomes the mean (float32 or wider) or the
        largest value (integers). Arrays of other types must not differ.
        """
        return {}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Load the arrays that `state` returned."""
        if state:
            raise ValueError(f"{type(self).__name__}: expected no state besides the weights, got {sorted(state)}")
