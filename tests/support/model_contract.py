"""The contract of every model of `pycollectives.train`, for the tests of each kind of model.

A test file has a fixture `make`, which makes a small data set and a model from a seed, and a subclass of
`ModelContract` whose name begins with Test.
"""

from __future__ import annotations

import numpy as np


def batch_of(data, which=slice(0, 8)):
    """Return the arrays of some training examples."""
    return tuple(array[which] for array in data.train)


def step(model, batch, rate=0.05):
    """Take a step of gradient descent; return the loss before it."""
    loss = model.forward(*batch)
    model.backward()
    model.weights -= rate * model.gradient
    return loss


class ModelContract:
    """Flat arrays that others may read and change, the same for the same seed."""

    def test_weights_and_gradient_are_flat(self, make):
        _, model = make()
        for array in (model.weights, model.gradient):
            assert (array.ndim, array.dtype, array.flags.c_contiguous) == (1, np.float32, True)
        assert model.weights.shape == model.gradient.shape

    def test_seed_decides_weights(self, make):
        np.testing.assert_array_equal(make(seed=1)[1].weights, make(seed=1)[1].weights)
        assert (make(seed=1)[1].weights != make(seed=2)[1].weights).any()

    def test_gradient_is_replaced_in_place(self, make):
        data, model = make()
        gradient = model.gradient
        model.forward(*batch_of(data))
        model.backward()
        first = gradient.copy()
        model.forward(*batch_of(data))
        model.backward()
        np.testing.assert_array_equal(gradient, first)
        model.forward(*batch_of(data, slice(8, 16)))
        model.backward()
        assert (gradient != first).any()
        assert model.gradient is gradient

    def test_inputs_are_not_changed(self, make):
        data, model = make()
        batch = batch_of(data)
        before = [array.copy() for array in batch]
        model.forward(*batch)
        model.backward()
        for array, copy in zip(batch, before, strict=True):
            np.testing.assert_array_equal(array, copy)
