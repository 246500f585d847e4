"""Residual networks for CIFAR-10 (eager-SGD, section 7.2.3: ResNet-32).

He, Zhang, Ren, Sun: Deep residual learning for image recognition, CVPR 2016, section 4.2: a convolution, three stages
of n blocks with 16, 32 and 64 channels, the mean over the image and a linear layer; 6 n + 2 layers. A shortcut into a
stage of more channels takes every second pixel and pads with zeros (their option A, which has no weights).
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional

from ..values import Size  # noqa: TC001 - the registry evaluates it
from .network import TorchModel

if TYPE_CHECKING:
    from ..datasets.base import Dataset


class ResNet(TorchModel):
    """A residual network of `depth` layers.

    ResNet-32 has 464 154 weights for three channels and ten classes: He et al.'s 0.46 million. eager-SGD's Table 1
    gives 467 194, for an implementation that it does not name.
    """

    def __init__(self, dataset: Dataset, *, depth: int = 32, width: Size = 16, seed: int = 0) -> None:
        if depth < 8 or depth % 6 != 2:
            raise ValueError(f"expected a depth of 6 n + 2, such as 8, 20 or 32, got {depth}")
        dataset.check_inputs("resnet32", "images and labels", (4, 1))
        channels = dataset.train[0].shape[1]
        super().__init__(lambda: resnet(channels, width, (depth - 2) // 6, dataset.classes), seed)


class Block(nn.Module):
    """Two convolutions with batch normalization, and the shortcut around them."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.stride = outputs // inputs
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=self.stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.padding = outputs - inputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the output of the block."""
        y = functional.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        shortcut = functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.padding))
        return functional.relu(y + shortcut)


def resnet(channels: int, width: int, blocks: int, classes: int) -> nn.Module:
    """Build the network."""
    widths = [width] * (blocks + 1) + [2 * width] * blocks + [4 * width] * blocks
    network = nn.Sequential(
        nn.Conv2d(channels, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        *[Block(inputs, outputs) for inputs, outputs in pairwise(widths)],
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * width, classes),
    )
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return network
