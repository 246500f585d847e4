"""Any PyTorch network as a model: its parameters and their gradients are views of two flat NumPy arrays.

What others write into `weights` the network computes with, and autograd adds into `gradient`, without a copy.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn import functional

from ..datasets.base import chunks
from ..models.base import Model, Score

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from ..datasets.base import Examples

__all__ = ["TorchModel"]


class TorchModel(Model):
    """A network that classifies: cross-entropy of what it returns for the inputs, which are all arrays but the last.

    `make` builds the network; PyTorch's random numbers are those of `seed` meanwhile, and as before afterwards. After
    construction `network` may be replaced by a wrapper of itself, such as `DistributedDataParallel(model.network)`:
    `forward` goes through the wrapper, `evaluate` and `state` do not, since they may be called on one rank alone.

    Unless OMP_NUM_THREADS says otherwise, PyTorch computes on one thread from then on, as under torchrun: a rank knows
    nothing of the others on its cores, and PyTorch would start a thread per core in each of them.

    Networks whose random numbers are drawn while training (dropout) are not resumed exactly: `state` has the buffers
    only.
    """

    def __init__(self, make: Callable[[], torch.nn.Module], seed: int) -> None:
        if "OMP_NUM_THREADS" not in os.environ:
            torch.set_num_threads(1)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network = make()
        self._bare = self.network
        self._loss: torch.Tensor | None = None
        parameters = [*self.network.parameters()]
        if any(parameter.dtype != torch.float32 for parameter in parameters):
            raise ValueError(f"expected float32 parameters, got {sorted({str(p.dtype) for p in parameters})}")
        self.state()  # refuses buffers that NumPy cannot hold
        self.weights = np.concatenate([parameter.detach().numpy().ravel() for parameter in parameters])
        self.gradient = np.zeros_like(self.weights)
        sizes = [parameter.numel() for parameter in parameters]
        weights = torch.from_numpy(self.weights).split(sizes)
        gradients = torch.from_numpy(self.gradient).split(sizes)
        for parameter, weight, gradient in zip(parameters, weights, gradients, strict=True):
            parameter.data = weight.view_as(parameter)
            parameter.grad = gradient.view_as(parameter)

    def forward(self, *batch: NDArray[Any]) -> float:
        """Return the mean cross-entropy of a batch, in training mode."""
        *inputs, labels = map(torch.from_numpy, batch)
        self._loss = functional.cross_entropy(self.network(*inputs), labels)
        return float(self._loss.detach())

    def backward(self) -> None:
        """Write the gradient of the last loss; once, since autograd frees what it needed."""
        if self._loss is None:
            raise RuntimeError("backward without a forward since the last one")
        self.gradient.fill(0)  # autograd adds
        self._loss.backward()
        self._loss = None

    def evaluate(self, *examples: Examples) -> Score:
        """Return the mean cross-entropy, and the accuracy, in evaluation mode."""
        loss, right, predicted = 0.0, 0, 0
        training = [module for module in self._bare.modules() if module.training]
        self._bare.eval()
        with torch.no_grad():
            for *inputs, labels in chunks(examples, 256):
                logits = self._bare(*map(torch.from_numpy, inputs))
                target = torch.from_numpy(labels)
                loss += float(functional.cross_entropy(logits, target, reduction="sum"))
                right += int((logits.argmax(dim=1) == target).sum())
                predicted += target.numel()
        for module in training:
            module.training = True
        return Score(loss / predicted, right / predicted)

    def state(self) -> dict[str, NDArray[Any]]:
        """The network's buffers, such as the running statistics of batch normalisation."""
        return {name: _copied(name, buffer) for name, buffer in self._bare.named_buffers()}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take back what `state` returned."""
        buffers = dict(self._bare.named_buffers())
        if {*state} != {*buffers}:
            raise ValueError(f"expected the buffers {sorted(buffers)}, got {sorted(state)}")
        for name, buffer in buffers.items():
            buffer.copy_(torch.as_tensor(state[name]))


def _copied(name: str, buffer: torch.Tensor) -> NDArray[Any]:
    try:
        return buffer.numpy().copy()
    except TypeError as error:
        raise TypeError(f"buffer {name!r}, of {buffer.dtype}: {error}") from None
