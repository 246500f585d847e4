"""Small data sets, and small networks of each kind for them: for tests of the models in PyTorch."""

from __future__ import annotations

import numpy as np

from pycollectives.train.datasets.base import Dataset
from pycollectives.train.datasets.characters import characters
from pycollectives.train.datasets.sequences import sequences
from pycollectives.train.torch_models.cnn import CNN
from pycollectives.train.torch_models.lstm import LSTM
from pycollectives.train.torch_models.mlp import TorchMLP
from pycollectives.train.torch_models.resnet import ResNet
from pycollectives.train.torch_models.transformer import Transformer
from pycollectives.train.torch_models.vgg import VGG


def images(side, count=24, channels=3, classes=10):
    random = np.random.default_rng(0)
    pixels = random.standard_normal((count, channels, side, side), dtype=np.float32)
    labels = np.arange(count) % classes
    return Dataset((pixels, labels), (pixels[: count // 2], labels[: count // 2]))


DATA = {
    "mlp": lambda: images(4),
    "cnn": lambda: images(8, channels=1),
    "resnet": lambda: images(8),
    "vgg": lambda: images(32),
    "lstm": lambda: sequences(examples=24, validation=12, features=3, classes=4),
    "transformer": lambda: characters(examples=24, validation=12, context=6),
}
MODELS = {
    "mlp": lambda data, seed: TorchMLP(data, hidden=6, seed=seed),
    "cnn": lambda data, seed: CNN(data, width=4, seed=seed),
    "resnet": lambda data, seed: ResNet(data, depth=8, width=4, seed=seed),
    "vgg": lambda data, seed: VGG(data, width=2, seed=seed),
    "lstm": lambda data, seed: LSTM(data, hidden=8, seed=seed),
    "transformer": lambda data, seed: Transformer(data, width=8, depth=1, heads=2, seed=seed),
}
