"""Models that compute on a device, and what is made of their arrays: on tensors of the host, which go the same ways.

`tests/gpu` has the same on a GPU.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from model_contract import ModelContract, batch_of, step  # noqa: E402
from mpi4py import MPI  # noqa: E402
from small_networks import DATA, MODELS  # noqa: E402

import pycollectives as pc  # noqa: E402
from pycollectives.support.native import core  # noqa: E402
from pycollectives.train import archive, placement  # noqa: E402
from pycollectives.train.arrays import assign, module_of, on_host, to_host  # noqa: E402
from pycollectives.train.optimizers import SGD, Adam  # noqa: E402
from pycollectives.train.placement import Placement  # noqa: E402
from pycollectives.train.settings import Settings  # noqa: E402

# ---- models


@pytest.fixture(params=MODELS)
def make(request):
    """Makes a small data set, and a staged model."""

    def make(seed=0, memory="staged"):
        data = DATA[request.param]()
        model = MODELS[request.param](data, seed)
        Placement("cpu", memory).place(model)
        return data, model

    return make


class TestStagedModel(ModelContract):
    pass


@pytest.mark.parametrize("memory", ["staged", "device"])
def test_steps_are_those_of_the_host_bit_for_bit(make, memory):
    data, model = make(memory=memory)
    _, expected = make(memory="host")
    assert isinstance(model.weights, np.ndarray if memory == "staged" else torch.Tensor)
    for start in (0, 8, 16):
        losses = [step(each, batch_of(data, slice(start, start + 8))) for each in (model, expected)]
        assert losses[0] == losses[1]
        np.testing.assert_array_equal(to_host(model.gradient), expected.gradient)
    np.testing.assert_array_equal(to_host(model.weights), expected.weights)
    assert model.evaluate(*data.validation) == expected.evaluate(*data.validation)
    assert {name: array.tolist() for name, array in model.state().items()} == {
        name: array.tolist() for name, array in expected.state().items()
    }


def test_staged_weights_are_copied_when_they_are_used(make):
    data, model = make()
    _, other = make(seed=1, memory="host")
    before = model.evaluate(*data.validation)
    model.weights[:] = other.weights
    assert model.evaluate(*data.validation) != before
    model.weights[:] = other.weights
    assert model.forward(*batch_of(data)) == other.forward(*batch_of(data))


# ---- update rules and files


RULES = {
    "sgd": lambda weights, schedule: SGD(weights, schedule),
    "momentum": lambda weights, schedule: SGD(weights, schedule, momentum=0.9, weight_decay=0.01),
    "adam": lambda weights, schedule: Adam(weights, schedule),
    "adamw": lambda weights, schedule: Adam(weights, schedule, weight_decay=0.1),
}


@pytest.mark.parametrize("rule", RULES)
def test_update_rules_are_the_same_for_tensors(rule):
    """A checkpoint of the one is one of the other, and both have the same bits."""
    draw = np.random.default_rng(0)
    weights = draw.standard_normal(1000, np.float32)
    tensor = torch.from_numpy(weights.copy())
    rules = [RULES[rule](each, lambda number: 1 / (1 + number)) for each in (weights, tensor)]
    for number in range(6):
        gradient = draw.standard_normal(1000, np.float32)
        rules[0].update(weights, gradient, number)
        rules[1].update(tensor, torch.from_numpy(gradient.copy()), number)
        states = [{name: to_host(array).copy() for name, array in each.state().items()} for each in rules]
        for name, array in states[0].items():
            np.testing.assert_array_equal(states[1][name], array)
        rules[number % 2].load_state({name: 0 * array for name, array in states[0].items()})
        rules[number % 2].load_state(states[1 - number % 2])
    np.testing.assert_array_equal(tensor.numpy(), weights)


@pytest.mark.parametrize("memory", ["host", "staged", "device"])
def test_files_do_not_tell_where_a_replica_was(make, memory):
    data, model = make(memory=memory)
    optimizer = Adam(model.weights, lambda number: 1.0)
    model.forward(*batch_of(data))
    model.backward()
    optimizer.update(model.weights, model.gradient, 0)
    file = {name: array.copy() for name, array in archive.pack(model, optimizer=optimizer).items()}
    assert all(type(array) is np.ndarray for array in file.values())
    for other in ("host", "staged", "device"):
        _, resumed = make(seed=1, memory=other)
        rule = Adam(resumed.weights, lambda number: 1.0)
        archive.unpack(file, resumed, optimizer=rule)
        for name, array in rule.state().items():
            np.testing.assert_array_equal(to_host(array), to_host(optimizer.state()[name]))
        np.testing.assert_array_equal(to_host(resumed.weights), file["weights"])
        assert resumed.evaluate(*data.validation) == model.evaluate(*data.validation)


def test_arrays_of_numpy_and_tensors():
    array, tensor = np.zeros(2, np.float32), torch.zeros(2)
    assert module_of(array) is np
    assert module_of(tensor) is torch
    assert to_host(array) is array
    for each in (array, tensor):
        assign(each, np.array([5.0, 6.0, 7.0])[::2])
        assert each.tolist() == [5.0, 7.0]


class Elsewhere:
    """A tensor that shares no memory with the host."""

    def __init__(self, tensor):
        self.tensor = tensor

    def cpu(self):
        return self.tensor.clone()

    def copy_(self, values):
        self.tensor.copy_(values)


def test_what_is_written_on_the_host_is_in_the_array_afterwards():
    array, tensor = np.zeros(2, np.float32), torch.zeros(2)
    for each in (array, Elsewhere(tensor)):
        with on_host(each) as values:
            values += 1
    assert array.tolist() == tensor.tolist() == [1.0, 1.0]


# ---- where a rank computes


@pytest.fixture
def devices(monkeypatch):
    """Lets PyTorch see so many CUDA devices."""

    def see(count):
        monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)

    return see


@pytest.mark.parametrize(
    ("device", "local_rank", "count", "expected"),
    [("cuda", 0, 2, 0), ("cuda", 1, 2, 1), ("cuda", 5, 2, 1), ("cuda", 3, 1, 0), ("cuda:1", 0, 2, 1)],
)
def test_ranks_of_a_machine_take_its_devices_in_turns(devices, device, local_rank, count, expected):
    devices(count)
    assert placement._device(device, local_rank) == f"cuda:{expected}"


def found(device="cuda", method="synchronous", model="cnn"):
    settings = Settings.of({"device": device, "method": method, "model": model})
    with pc.Communicator(MPI.COMM_SELF) as comm:
        return Placement.agreed(settings, comm)


def test_a_device_that_is_not_there(devices, monkeypatch):
    devices(2)
    with pytest.raises(ValueError, match="device cuda:2: PyTorch sees 2 CUDA devices here, cuda:0 to cuda:1"):
        found("cuda:2")
    devices(0)
    monkeypatch.setattr(torch.cuda, "init", lambda: exec("raise RuntimeError('no driver')"))
    with pytest.raises(ValueError, match=re.escape(f"{torch.__version__} cannot use a CUDA device here: no driver")):
        found()
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: False)
    with pytest.raises(ValueError, match=r"device cuda:1: PyTorch .* was built without CUDA"):
        found("cuda:1")
    with pytest.raises(ValueError, match="cuda: model 'mlp' computes with NumPy, on the host: choose a PyTorch model"):
        found(model="mlp")
    assert found("cpu", model="mlp") == Placement()


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:-1", "cuda:0 ", "CUDA"])
def test_what_is_no_device(device):
    with pytest.raises(ValueError, match="device: expected cpu, cuda or cuda:N, got"):
        Settings.of({"device": device})


@pytest.mark.parametrize(
    ("method", "reason", "expected"),
    [
        ("synchronous", "", ("staged", "the method works in host memory")),
        ("hop", "", ("staged", "the method works in host memory")),
        ("eager", "", ("device", "")),
        ("m-synchronous,m=1", "", ("device", "")),
        ("ripples", "", ("device", "")),
        ("ad-psgd", "", ("device", "")),
        ("a2cid2", "", ("device", "")),
        ("ddp", "no driver", ("device", "")),
        ("eager", "no driver", ("staged", "CUDA is off in pycollectives: no driver")),
    ],
)
def test_methods_that_take_tensors_are_given_them(devices, monkeypatch, method, reason, expected):
    devices(1)
    monkeypatch.setattr(core, "cuda_availability", lambda: {"reason": reason})
    where = found(method=method)
    assert (where.device, where.memory, where.why_staged) == ("cuda:0", *expected)
    assert where.signature() == {"memory": expected[0]}


def test_the_head_of_a_run_says_what_is_staged(capsys):
    for where in (Placement(), Placement("cuda:1", "device"), Placement("cuda:1", "staged", "it is so")):
        where.announce()
    assert capsys.readouterr().err.splitlines() == [
        "Rank 0 computes on cuda:1; weights and gradients stay there.",
        "Rank 0 computes on cuda:1; weights and gradients are staged through the host: it is so.",
    ]
    assert str(Placement("cuda:1", "staged", "it is so")) == "cuda, staged through the host"
