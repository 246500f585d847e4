"""Any PyTorch network as a model: its parameters and their gradients are views of two flat tensors.

On the host, `weights` and `gradient` are NumPy arrays on the same memory, so changes need no copy. On a device they are
the tensors themselves, or copies on the host.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

import torch
from torch.nn import functional

from ...torch.host_copy import HostCopy, wait_for
from ..datasets.base import chunks
from ..models.base import Model, Score

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from ...torch.means import Memory
    from ..datasets.base import Examples


class TorchModel(Model):
    """A network that classifies, with the cross-entropy loss. Its inputs are all arrays of a batch except the last.

    `make` builds the network with PyTorch's random numbers seeded by `seed`; their state is restored afterwards. After
    construction `network` may be replaced by a wrapper of itself, such as `DistributedDataParallel(model.network)`:
    `forward` uses the wrapper. `evaluate` and `state` do not, because a single rank may call them.

    Unless OMP_NUM_THREADS is set, PyTorch then computes on one thread, as under torchrun, since ranks share the cores.

    A staged model copies its weights to the device before it computes, and its gradient to the host afterwards.

    A network that draws random numbers in training (dropout) does not resume exactly: `state` has only the buffers.
    """

    runs_on_devices = True

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
        self.move_to("cpu", "host")

    def move_to(self, device: str, memory: Memory) -> None:
        """Move the model to a device, with `weights` and `gradient` in the given kind of memory."""
        self._device = torch.device(device)
        self._bare.to(self._device)
        parameters = [*self._bare.parameters()]
        self._weights = torch.cat([parameter.detach().reshape(-1) for parameter in parameters])
        self._gradient = torch.zeros_like(self._weights)
        sizes = [parameter.numel() for parameter in parameters]
        pairs = zip(self._weights.split(sizes), self._gradient.split(sizes), strict=True)
        for parameter, (weight, gradient) in zip(parameters, pairs, strict=True):
            parameter.data = weight.view_as(parameter)
            parameter.grad = gradient.view_as(parameter)
        self._show(memory)

    def _show(self, memory: Memory) -> None:
        """Set `weights` and `gradient`."""
        self._copies: tuple[HostCopy, HostCopy] | None = None
        if memory == "staged":
            self._copies = HostCopy(self._weights), HostCopy(self._gradient)
            self.weights, self.gradient = (copy.array for copy in self._copies)
            self._copies[0].fetch(self._weights)
        elif memory == "host":
            self.weights, self.gradient = self._weights.numpy(), self._gradient.numpy()
        else:
            self.weights, self.gradient = cast("Any", self._weights), cast("Any", self._gradient)

    def forward(self, *batch: NDArray[Any]) -> float:
        """Return the mean cross-entropy of a batch, in training mode."""
        self._take_weights()
        *inputs, labels = self._on_device(batch)
        self._loss = functional.cross_entropy(self.network(*inputs), labels)
        return float(self._loss.detach())

    def backward(self) -> None:
        """Write the gradient of the last loss. Call it once per `forward`, since autograd frees its data."""
        if self._loss is None:
            raise RuntimeError("backward: expected a call of forward since the last backward, got none")
        self._gradient.zero_()  # autograd adds
        self._loss.backward()
        self._loss = None
        if self._copies is not None:
            self._copies[1].fetch(self._gradient)
        else:
            wait_for(self._device)  # so that computing is not taken for waiting

    def evaluate(self, *examples: Examples) -> Score:
        """Return the mean cross-entropy, and the accuracy, in evaluation mode."""
        self._take_weights()
        loss, right, predicted = 0.0, 0, 0
        training = [module for module in self._bare.modules() if module.training]
        self._bare.eval()
        with torch.no_grad():
            for chunk in chunks(examples, 256):
                *inputs, target = self._on_device(chunk)
                logits = self._bare(*inputs)
                loss += float(functional.cross_entropy(logits, target, reduction="sum"))
                right += int((logits.argmax(dim=1) == target).sum())
                predicted += target.numel()
        for module in training:
            module.training = True
        return Score(loss / predicted, right / predicted)

    def _take_weights(self) -> None:
        """Copy staged weights, which other modules may have changed, to the device."""
        if self._copies is not None:
            self._copies[0].put(self._weights)

    def _on_device(self, arrays: tuple[NDArray[Any], ...]) -> Iterator[torch.Tensor]:
        return (torch.from_numpy(array).to(self._device) for array in arrays)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the network's buffers, such as the running statistics of batch normalization."""
        return {name: _copied(name, buffer) for name, buffer in self._bare.named_buffers()}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        buffers = dict(self._bare.named_buffers())
        if {*state} != {*buffers}:
            raise ValueError(f"expected the buffers {sorted(buffers)}, got {sorted(state)}")
        for name, buffer in buffers.items():
            buffer.copy_(torch.as_tensor(state[name]))


def _copied(name: str, buffer: torch.Tensor) -> NDArray[Any]:
    try:
        return buffer.cpu().numpy().copy()
    except TypeError as error:
        raise TypeError(f"buffer {name!r}, of {buffer.dtype}: {error}") from None
