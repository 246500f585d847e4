"""Common code of tests of training on several ranks: jobs as the command line runs them, and their files.

Weights are read from the checkpoint that a job writes at its end. Importing this adds its data sets and models to the
registries.
"""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI

from pycollectives.train import job, metrics
from pycollectives.train.datasets import DATASETS
from pycollectives.train.datasets.base import Dataset
from pycollectives.train.models import MODELS
from pycollectives.train.models.base import Model, Score
from pycollectives.train.replica import Replica
from pycollectives.train.settings import Settings
from pycollectives.train.synchronizers import METHODS

WORLD = MPI.COMM_WORLD
P = WORLD.size
BATCH, STEPS_PER_EPOCH = 8, 8
"""The batch of one rank, and the steps of an epoch."""

OPTIONS = {"m-synchronous": f"m-synchronous,m={(P + 1) // 2}"}
"""The strings of methods that need options."""

EVERY_METHOD = [OPTIONS.get(name, name) for name in METHODS.names if name != "ddp"]
VARIANTS = [
    *("eager,policy=solo", "eager,policy=quorum:1,missed=sum", "eager,policy=full", "eager,divide_by=contributors"),
    *("eager,policy=solo,max_staleness=2", "ripples,groups=random", "ripples,groups=static,ranks_per_node=2"),
    *("parameter-server,sync=asp", "parameter-server,sync=ssp:1", "parameter-server,sync=dssp:1:4,servers=1"),
    *("parameter-server,sync=elastic:4", f"parameter-server,sync=rennala:{P}", "parameter-server,sync=ringleader"),
    *(f"parameter-server,sync=ringmaster:{P}", "parameter-server,sync=rescaled,servers=1", "eamsgd,period=2"),
    *("parameter-server,sync=mindflayer:1:0.05", "parameter-server,sync=mindflayer:2:100,servers=1"),
    *("ripples,groups=punctual,every=3", "ad-psgd,topology=ring,pace=per_step", "a2cid2,topology=ring"),
]

WAITING = [
    *("synchronous", "eager,policy=full", "eager,policy=full,missed=sum", f"m-synchronous,m={P}"),
    *("parameter-server", "parameter-server,servers=1"),
]
"""Methods that wait for all ranks in every step."""

SUMMING = ["eager,policy=solo,missed=sum", "eager,policy=majority,missed=sum", "eager,policy=quorum:1,missed=sum"]
"""Methods that lose no gradient."""

ONE_SLOW, ONE_FAST = "one-slow,work_ms=0.5,factor=10", "one-slow,work_ms=3,factor=0.1"
ONE_LATE = "one-slow,work_ms=0.5,factor=100"  # however busy the machine is


# --- What is trained


def blobs(*, seed=0):
    """Return three clouds in four dimensions."""
    random = np.random.default_rng(seed)
    labels = np.arange(P * BATCH * STEPS_PER_EPOCH) % 3
    inputs = (random.standard_normal((len(labels), 4)) + 3 * np.eye(3, 4)[labels]).astype(np.float32)
    return Dataset((inputs, labels), (inputs, labels))


def numbers():
    """Return examples that are only their numbers."""
    examples = np.arange(P * BATCH * STEPS_PER_EPOCH)
    return Dataset((examples,), (examples,))


class Counting(Model):
    """Counts how often each example was applied to this replica: with SGD of rate 1, a gradient adds 1 for its batch.

    The counts are exact, since gradients are multiples of the number of ranks, by which they are divided.
    """

    def __init__(self, dataset):
        self.weights = np.zeros(len(dataset.train[0]), np.float32)
        self.gradient = np.zeros_like(self.weights)

    def forward(self, *batch):
        (self._examples,) = batch
        return 0.0

    def backward(self):
        self.gradient[:] = 0
        self.gradient[self._examples] = -P

    def evaluate(self, *examples):
        return Score(float(self.weights.max()), float(self.weights.min()))


class Keeping(Counting):
    """Has running statistics and a count besides its weights."""

    def __init__(self, dataset):
        super().__init__(dataset)
        self.kept = {"mean": np.full(2, WORLD.rank, np.float32), "count": np.array(10 + WORLD.rank)}

    def state(self):
        return {name: array.copy() for name, array in self.kept.items()}

    def load_state(self, state):
        self.kept = dict(state)


DATASETS.add("blobs", f"{__name__}:blobs")
DATASETS.add("numbers", f"{__name__}:numbers")
MODELS.add("counting", f"{__name__}:Counting")
MODELS.add("keeping", f"{__name__}:Keeping")


# --- Jobs


steps_taken = []
"""The numbers of the steps that this rank has taken, of all jobs one after another."""


def train(comm, method, output=None, *, signalled=lambda: False, resume=False, **settings):
    said = {"data": "blobs", "model": "mlp,hidden=8", "optimizer": "sgd,rate=0.2", "batch": P * BATCH, **settings}
    step = Replica.step

    def counted(replica, number, *arguments):
        steps_taken.append(number)
        return step(replica, number, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Replica, "step", counted)
        return job.run(
            Settings.of({"method": method, "output": output, **said}), comm, is_signalled=signalled, resume=resume
        )


def count_examples(comm, method, output=None, **settings):
    given = {"data": "numbers", "model": "counting", "optimizer": "sgd,rate=1", **settings}
    return train(comm, method, output, **given)


def after(steps, rank=P - 1):
    """Make one rank stop when it has taken this number of steps from now on."""
    stop = len(steps_taken) + steps
    return lambda: WORLD.rank == rank and len(steps_taken) >= stop


def refused_everywhere(text, call, *arguments):
    """Check that the call raises a ValueError with this text on every rank."""
    with pytest.raises(ValueError, match=text) as raised:
        call(*arguments)
    assert len(set(WORLD.allgather(str(raised.value)))) == 1


# --- What they leave


def saved_in(output):
    """Return this rank's arrays in the newest checkpoint, by name."""
    folder = output / "checkpoint"
    with np.load(folder / (folder / "latest").read_text() / f"rank-{WORLD.rank:04d}.npz") as file:
        return dict(file)


def weights_in(output):
    return saved_in(output)["weights"]


def lines_in(output, rank):
    """Return the lines of a rank's metrics file."""
    return metrics.read(output / f"metrics-rank-{rank:04d}.jsonl")


def steps_in(output, rank):
    """Return the steps in a rank's metrics file."""
    return [line["number"] for line in lines_in(output, rank)]
