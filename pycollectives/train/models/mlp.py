"""A multi-layer perceptron: ReLU between its layers, softmax and cross-entropy at its end.

Backpropagation by hand: with z = x W + b, the gradients of W, b and x are x^T dz, the sum of dz, and dz W^T. The
gradient of cross-entropy after softmax is the probabilities, less 1 at the right class.
"""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ..datasets.base import chunks
from ..values import Count, Size  # noqa: TC001 - the registry evaluates them
from .base import Model, Score

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ..datasets.base import Dataset, Examples

    Array = NDArray[np.float32]


class MLP(Model):
    """A classifier with `depth` hidden layers of `hidden` neurons. With `depth` 0, it is linear and its loss is convex.

    >>> from pycollectives.train.datasets.digits import digits
    >>> data = digits()
    >>> model = MLP(data, hidden=32)
    >>> for _ in range(300):
    ...     loss = model.forward(*(array[:] for array in data.train))
    ...     model.backward()
    ...     model.weights -= 0.5 * model.gradient
    >>> model.evaluate(*data.validation).accuracy > 0.9
    True
    """

    def __init__(self, dataset: Dataset, *, hidden: Size = 128, depth: Count = 1, seed: int = 0) -> None:
        dataset.check_inputs("mlp", "inputs and labels", (len(dataset.train[0].shape), 1))
        sizes = [prod(dataset.train[0].shape[1:]), *[hidden] * depth, dataset.classes]
        shapes = [shape for inputs, outputs in pairwise(sizes) for shape in ((inputs, outputs), (outputs,))]
        self.weights = np.zeros(sum(prod(shape) for shape in shapes), np.float32)
        self.gradient = np.zeros_like(self.weights)
        self._matrices, self._biases = layers_of(self.weights, shapes)
        self._matrix_gradients, self._bias_gradients = layers_of(self.gradient, shapes)
        random = np.random.default_rng(seed)
        for matrix in self._matrices:  # He et al. 2015: keeps the variance through ReLU
            matrix[:] = random.standard_normal(matrix.shape) * np.sqrt(2 / len(matrix))

    @property
    def layers(self) -> list[tuple[Array, Array]]:
        """The matrix and the bias of each layer, which are views of `weights`."""
        return list(zip(self._matrices, self._biases, strict=True))

    def forward(self, *batch: NDArray[Any]) -> float:
        """Return the mean cross-entropy of inputs (of any shape) and labels."""
        inputs, self._labels = batch
        self._activations = self._propagate(inputs)
        self._log_probabilities = log_softmax(self._activations.pop())
        return -float(self._log_probabilities[np.arange(len(inputs)), self._labels].mean())

    def backward(self) -> None:
        delta = np.exp(self._log_probabilities)
        delta[np.arange(len(delta)), self._labels] -= 1
        delta /= len(delta)
        for layer in reversed(range(len(self._matrices))):
            inputs = self._activations[layer]
            np.dot(inputs.T, delta, out=self._matrix_gradients[layer])
            np.sum(delta, axis=0, out=self._bias_gradients[layer])
            delta = (delta @ self._matrices[layer].T) * (inputs > 0)

    def evaluate(self, *examples: Examples) -> Score:
        """Return the mean cross-entropy, and the accuracy."""
        loss, right = 0.0, 0
        for inputs, labels in chunks(examples, 1024):
            log_probabilities = log_softmax(self._propagate(inputs)[-1])
            loss -= float(log_probabilities[np.arange(len(inputs)), labels].sum(dtype=np.float64))
            right += int((log_probabilities.argmax(axis=1) == labels).sum())
        return Score(loss / len(examples[0]), right / len(examples[0]))

    def _propagate(self, inputs: NDArray[Any]) -> list[Array]:
        """Return the inputs of every layer, then the outputs of the last layer."""
        activations = [inputs.reshape(len(inputs), -1)]
        for matrix, bias in zip(self._matrices, self._biases, strict=True):
            activations.append(activations[-1] @ matrix + bias)
            if matrix is not self._matrices[-1]:
                np.maximum(activations[-1], 0, out=activations[-1])
        return activations


def layers_of(flat: Array, shapes: Sequence[tuple[int, ...]]) -> tuple[list[Array], list[Array]]:
    """Return views of a flat array: each layer's matrix and bias."""
    pieces = np.split(flat, np.cumsum([prod(shape) for shape in shapes])[:-1])
    views = [piece.reshape(shape) for piece, shape in zip(pieces, shapes, strict=True)]
    return views[::2], views[1::2]


def log_softmax(logits: Array) -> Array:
    """Return the logarithms of the softmax probabilities, without overflow."""
    shifted: Array = logits - logits.max(axis=1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return shifted
