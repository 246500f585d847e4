"""The models in NumPy: gradients against finite differences, flat weights that others may change, learning."""

import doctest
import importlib

import numpy as np
import pytest
from model_contract import ModelContract, batch_of

from pycollectives.train.datasets.base import Dataset
from pycollectives.train.datasets.digits import digits
from pycollectives.train.datasets.hyperplane import hyperplane
from pycollectives.train.models import MODELS as REGISTRY
from pycollectives.train.models.base import Score
from pycollectives.train.models.hyperplane import Hyperplane
from pycollectives.train.models.mlp import MLP
from pycollectives.train.registry import Choice


def blobs(count=60, features=(2, 3), classes=4):
    """Inputs of a shape, and labels that a model can find."""
    random = np.random.default_rng(0)
    labels = np.arange(count) % classes
    centres = random.normal(size=(classes, *features))
    inputs = (centres[labels] + 0.3 * random.normal(size=(count, *features))).astype(np.float32)
    return Dataset((inputs[10:], labels[10:]), (inputs[:10], labels[:10]))


MODELS = {
    "hyperplane": lambda seed=0: (
        data := hyperplane(dimensions=12, points=50, validation=9),
        Hyperplane(data, seed=seed),
    ),
    "mlp": lambda seed=0: (data := blobs(), MLP(data, hidden=5, seed=seed)),
    "deep mlp": lambda seed=0: (data := blobs(), MLP(data, hidden=6, depth=3, seed=seed)),
    "linear": lambda seed=0: (data := blobs(), MLP(data, depth=0, seed=seed)),
}


@pytest.fixture(params=MODELS)
def make(request):
    """Makes a small data set and a model."""
    return MODELS[request.param]


def finite_differences(model, batch, step):
    """The gradient by central differences, in double precision."""
    model.forward(*batch)
    differences = np.empty(model.weights.size)
    for index, weight in enumerate(model.weights.copy()):
        losses = []
        for moved in (weight + step, weight - step):
            model.weights[index] = moved
            losses.append((model.forward(*batch), float(model.weights[index])))
        model.weights[index] = weight
        differences[index] = (losses[0][0] - losses[1][0]) / (losses[0][1] - losses[1][1])
    return differences


def test_gradient_is_that_of_the_loss(make):
    data, model = make()
    batch = batch_of(data, slice(0, 16))
    model.weights += np.random.default_rng(3).normal(scale=0.1, size=model.weights.size)  # biases that are not 0
    expected = finite_differences(model, batch, 1e-3)
    model.forward(*batch)
    model.backward()
    np.testing.assert_allclose(model.gradient, expected, atol=2e-3 * np.abs(expected).max())
    assert np.abs(expected).max() > 0.01


class TestEveryModel(ModelContract):
    pass


def test_backward_may_be_repeated(make):
    data, model = make()
    model.forward(*batch_of(data))
    model.backward()
    first = model.gradient.copy()
    model.backward()
    np.testing.assert_array_equal(model.gradient, first)


def test_evaluate_is_the_mean_and_changes_nothing(make, monkeypatch):
    data, model = make()
    weights = model.weights.copy()
    model.forward(*batch_of(data))
    score = model.evaluate(*data.validation)
    model.backward()  # of the batch, still
    gradient = model.gradient.copy()
    model.forward(*batch_of(data))
    model.backward()
    np.testing.assert_array_equal(model.gradient, gradient)
    np.testing.assert_array_equal(model.weights, weights)
    whole = model.forward(*(array[:] for array in data.validation))
    assert score.loss == pytest.approx(whole, rel=1e-5)


def test_evaluate_goes_in_chunks():
    data = hyperplane(dimensions=3, points=8, validation=600)
    model = Hyperplane(data)
    whole = model.forward(*(array[:] for array in data.validation))
    assert model.evaluate(*data.validation).loss == pytest.approx(whole, rel=1e-5)
    data = blobs(5000)
    model = MLP(data)
    score = model.evaluate(*data.train)
    assert score.loss == pytest.approx(model.forward(*data.train), rel=1e-5)
    right = [model.evaluate(*(array[i : i + 1] for array in data.train)).accuracy for i in range(200)]
    assert set(right) == {0.0, 1.0}
    assert model.evaluate(*(array[:200] for array in data.train)).accuracy == pytest.approx(np.mean(right))


def test_there_is_no_other_state(make):
    _, model = make()
    model.load_state(model.state())
    with pytest.raises(ValueError, match="expected no state besides the weights"):
        model.load_state({"mean": np.zeros(1)})


def test_hyperplane_has_the_papers_number_of_weights():
    data = hyperplane(points=8, validation=8)
    assert Hyperplane(data).weights.size == 8193


def test_hyperplane_is_found():
    data = hyperplane(dimensions=16, points=1024, validation=256, noise=0.1)
    model = Hyperplane(data)
    for _ in range(100):
        model.forward(*batch_of(data, slice(0, 1024)))
        model.backward()
        model.weights -= 0.2 * model.gradient
    score = model.evaluate(*data.validation)
    assert score == Score(pytest.approx(0.01, rel=0.3), None)


def test_mlp_survives_large_logits():
    data = blobs()
    model = MLP(data)
    model.weights *= 1e4
    assert np.isfinite(model.forward(*batch_of(data)))
    model.backward()
    assert np.isfinite(model.gradient).all()


def test_mlp_learns_digits():
    pytest.importorskip("sklearn")
    data = digits()
    model = MLP(data)
    random = np.random.default_rng(0)
    for _ in range(20):
        for which in random.permutation(1437)[:1408].reshape(-1, 64):
            model.forward(*batch_of(data, which))
            model.backward()
            model.weights -= 0.2 * model.gradient
    assert model.evaluate(*data.validation).accuracy > 0.94


@pytest.mark.parametrize("name", ["hyperplane", "mlp"])
def test_examples(name):
    if name == "mlp":
        pytest.importorskip("sklearn")
    results = doctest.testmod(importlib.import_module(f"pycollectives.train.models.{name}"))
    assert (results.failed, results.attempted > 0) == (0, True)


@pytest.mark.parametrize("name", ["mlp", "mlp-torch"])
def test_a_linear_classifier_by_its_name(name):
    if name == "mlp-torch":
        pytest.importorskip("torch")
    model = REGISTRY.make(Choice.parse(f"{name},depth=0"), blobs(), seed=1)
    inputs, labels = blobs().train
    assert model.weights.size == (inputs[0].size + 1) * (labels.max() + 1)
    with pytest.raises(ValueError, match="depth: expected at least 0, got -1"):
        REGISTRY.make(Choice.parse(f"{name},depth=-1"), blobs(), seed=1)
