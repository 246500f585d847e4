"""A small convolutional network, for the digits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from ..values import Size  # noqa: TC001 - the registry evaluates it
from .network import TorchModel

if TYPE_CHECKING:
    from ..datasets.base import Dataset


class CNN(TorchModel):
    """Two convolutions of `width` and 2 `width` channels, each with ReLU, then pooling by 2 and a linear layer."""

    def __init__(self, dataset: Dataset, *, width: Size = 16, seed: int = 0) -> None:
        dataset.check_inputs("cnn", "images and labels", (4, 1))
        channels, height, breadth = dataset.train[0].shape[1:]
        features = 2 * width * (height // 2) * (breadth // 2)
        super().__init__(lambda: cnn(channels, width, features, dataset.classes), seed)


def cnn(channels: int, width: int, features: int, classes: int) -> nn.Module:
    """Build the network."""
    return nn.Sequential(
        nn.Conv2d(channels, width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(features, classes),
    )
