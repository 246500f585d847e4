"""What becomes, when replicas settle, of what a model keeps beside its weights: running statistics, tables, masks."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI

import pycollectives as pc
from pycollectives.train.batches import Batches
from pycollectives.train.control import ControlChannel
from pycollectives.train.datasets.base import Dataset
from pycollectives.train.loop import Training
from pycollectives.train.models.mlp import MLP
from pycollectives.train.optimizers import SGD
from pycollectives.train.registry import Choice
from pycollectives.train.replica import Replica
from pycollectives.train.synchronizers import METHODS, Synchronizer

WORLD = MPI.COMM_WORLD
P = WORLD.size


def settle(state):
    model = SimpleNamespace(weights=np.zeros(1, np.float32), state=lambda: state, load_state=lambda taken: None)
    with pc.Communicator(WORLD) as comm, ControlChannel(comm) as control:
        Replica(model, None, Synchronizer()).settle(0, control)


@pytest.mark.parametrize("kind", [bool, np.float16, np.float32, np.float64, np.complex64, np.uint8])
def test_what_is_equal_stays_as_it_is(kind):
    """A mean over the ranks would change the last bits of a third."""
    table = (np.arange(999).reshape(27, 37) % 200 / 3).astype(kind)
    state = {"table": table.copy()}
    settle(state)
    np.testing.assert_array_equal(state["table"], table)


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64, np.uint8])
def test_statistics_are_averaged_and_counts_are_the_largest(kind):
    state = {"rank": np.full((2, 3), WORLD.rank, kind), "one": np.array(7 + (WORLD.rank == P - 1), kind)}
    settle(state)
    floats = np.issubdtype(kind, np.floating)
    np.testing.assert_array_equal(state["rank"], np.full((2, 3), (P - 1) / 2 if floats else P - 1))
    np.testing.assert_allclose(state["one"], 7 + 1 / P if floats else 8, rtol=1e-6)


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("kind", [bool, np.float16, np.complex64])
def test_what_differs_and_cannot_be_averaged_is_named(kind):
    mask = np.array([1, WORLD.rank == 0], kind)
    with pytest.raises(TypeError, match=f"'mask', of {np.dtype(kind)}, differs between ranks"):
        settle({"another": np.zeros(2), "mask": mask})


class Running(MLP):
    """Keeps a running mean of its inputs, as batch normalisation does."""

    def __init__(self, dataset):
        super().__init__(dataset, hidden=4)
        self.mean = np.zeros(3, np.float32)

    def forward(self, *batch):
        self.mean += np.float32(0.1) * (batch[0].mean(axis=0) - self.mean)
        return super().forward(*batch)

    def state(self):
        return {"mean": self.mean.copy()}

    def load_state(self, state):
        self.mean[:] = state["mean"]


def test_running_statistics_are_the_exception_to_the_same_bits():
    """Of `synchronous`: averaged once more, on the way, they are the same to rounding, and weights to the bit."""
    inputs = np.random.default_rng(0).standard_normal((P * 24, 3)).astype(np.float32)
    dataset = Dataset((inputs, np.arange(P * 24) % 2), (inputs[:2], np.arange(2)))
    batches = Batches(dataset, P * 4, rank=WORLD.rank, ranks=P, seed=1)
    weights, means = [], []
    with pc.Communicator(WORLD) as comm, ControlChannel(comm) as control:
        for settle_every in (None, 5):
            model = Running(dataset)
            method = METHODS.make(Choice("synchronous"), comm, model)
            replica = Replica(model, SGD(model.weights, lambda number: 1.0), method)
            assert Training(12, settle_every).run(control, replica, batches, lambda number, begin: None)
            weights.append(model.weights.tobytes())
            means.append(model.mean)
    assert weights[0] == weights[1]
    np.testing.assert_allclose(*means, rtol=1e-5, atol=1e-6)
