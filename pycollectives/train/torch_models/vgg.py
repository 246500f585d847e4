"""VGG-16 for CIFAR-10 (Ripples, section 7.1.2; AD-PSGD, section 5).

Simonyan, Zisserman: Very deep convolutional networks for large-scale image recognition, ICLR 2015, configuration D:
thirteen convolutions of 3 x 3, pooling by 2 after the 2nd, 4th, 7th, 10th and 13th. For 32 x 32 pixels the three
linear layers are one, as usual. Batch normalization, which is newer than the paper, makes it train without a schedule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from ..values import Size  # noqa: TC001 - the registry evaluates it
from .network import TorchModel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..datasets.base import Dataset

STAGES = ((1, 2), (2, 2), (4, 3), (8, 3), (8, 3))  # times `width` channels, convolutions


class VGG(TorchModel):
    """VGG-16 whose first convolution has `width` channels, and whose last has 8 `width`.

    The published width is 64: 14.7 million weights, 58.9 MB. Ripples' model has 9.23 MB; the paper does not give its
    shape. The nearest width is 26, with 2.43 million weights, 9.28 MiB.
    """

    def __init__(self, dataset: Dataset, *, width: Size = 64, seed: int = 0) -> None:
        dataset.check_inputs("vgg16", "images and labels", (4, 1))
        channels, height, breadth = dataset.train[0].shape[1:]
        if (height, breadth) != (32, 32):
            raise ValueError(
                f"expected images of 32 x 32 pixels, got {height} x {breadth}: VGG-16 halves them five times"
            )
        super().__init__(lambda: nn.Sequential(*layers(channels, width, dataset.classes)), seed)


def layers(channels: int, width: int, classes: int) -> Iterator[nn.Module]:
    """Yield the layers in order."""
    inputs = channels
    for factor, convolutions in STAGES:
        for _ in range(convolutions):
            outputs = factor * width
            yield nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
            yield nn.BatchNorm2d(outputs)
            yield nn.ReLU()
            inputs = outputs
        yield nn.MaxPool2d(2)
    yield nn.Flatten()
    yield nn.Linear(inputs, classes)
