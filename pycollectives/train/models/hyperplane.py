"""A one-layer perceptron without activation: linear regression (eager-SGD, section 7.2.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..datasets.base import chunks
from .base import Model, Score

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..datasets.base import Dataset, Examples


class Hyperplane(Model):
    """The mean squared error of w . x + b: 8 193 weights in 8 192 dimensions, b last.

    >>> from pycollectives.train.datasets.hyperplane import hyperplane
    >>> data = hyperplane(dimensions=8, points=64, validation=64, noise=0.0)
    >>> model = Hyperplane(data)
    >>> for _ in range(200):
    ...     loss = model.forward(*(array[:] for array in data.train))
    ...     model.backward()
    ...     model.weights -= 0.2 * model.gradient
    >>> model.evaluate(*data.validation).loss < 1e-4
    True
    """

    def __init__(self, dataset: Dataset, *, seed: int = 0) -> None:
        dataset.check_inputs("hyperplane", "points and their values", (2, 1))
        dimensions = dataset.train[0].shape[1]
        self.weights = np.zeros(dimensions + 1, np.float32)
        self.weights[:-1] = np.random.default_rng(seed).standard_normal(dimensions) / np.sqrt(dimensions)
        self.gradient = np.zeros_like(self.weights)

    def forward(self, *batch: NDArray[Any]) -> float:
        """Return the mean squared error of points and values."""
        points, values = batch
        self._points = points
        self._errors = self._predict(points) - values
        return float(np.mean(np.square(self._errors)))

    def backward(self) -> None:
        """Write the gradient of the last loss: 2 / n times the errors' sum, weighted by the points."""
        factors = self._errors * np.float32(2 / len(self._errors))
        np.dot(factors, self._points, out=self.gradient[:-1])
        self.gradient[-1] = factors.sum()

    def evaluate(self, *examples: Examples) -> Score:
        """Return the mean squared error, with no accuracy."""
        squares = sum(float(np.square(self._predict(x) - y).sum(dtype=np.float64)) for x, y in chunks(examples, 256))
        return Score(squares / len(examples[0]), None)

    def _predict(self, points: NDArray[Any]) -> NDArray[np.float32]:
        predicted: NDArray[np.float32] = points @ self.weights[:-1] + self.weights[-1]
        return predicted
