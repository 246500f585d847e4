"""The perceptron of `models.mlp` as a PyTorch module, for methods that need a module, such as `ddp`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from ..models.mlp import MLP
from ..values import Count, Size  # noqa: TC001 - the registry evaluates them
from .network import TorchModel

if TYPE_CHECKING:
    from ..datasets.base import Dataset


class TorchMLP(TorchModel):
    """The same layers and initial weights as `MLP`; results differ by rounding, and a step costs PyTorch's overhead."""

    def __init__(self, dataset: Dataset, *, hidden: Size = 128, depth: Count = 1, seed: int = 0) -> None:
        like = MLP(dataset, hidden=hidden, depth=depth, seed=seed)
        super().__init__(lambda: _module_of(like), seed)


def _module_of(model: MLP) -> nn.Module:
    """Return a module with the weights of a model."""
    modules: list[nn.Module] = [nn.Flatten()]
    for matrix, bias in model.layers:
        linear = nn.Linear(*matrix.shape)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(matrix.T))
            linear.bias.copy_(torch.from_numpy(bias))
        modules += [linear, nn.ReLU()]
    return nn.Sequential(*modules[:-1])
