"""Training where methods do not see the arrays that a model computes with: staged, or tensors.

There is no device in it: tensors of the host take the same ways. tests/gpu trains on a GPU.
"""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from train_jobs import BATCH, EVERY_METHOD, WORLD, P, refused_everywhere, train, weights_in  # noqa: E402

import pycollectives as pc  # noqa: E402
from pycollectives.interop import means  # noqa: E402
from pycollectives.train import placement  # noqa: E402
from pycollectives.train.datasets import DATASETS  # noqa: E402
from pycollectives.train.datasets.base import Dataset  # noqa: E402
from pycollectives.train.placement import Placement  # noqa: E402

STEPS = 6
TAKES_TENSORS = ["eager,policy=full", f"m-synchronous,m={P}", "ddp"]
"""Of which each step waits for all, so that the weights of two runs can be compared."""


def pixels():
    """Images of four by four pixels, of three classes."""
    random = np.random.default_rng(0)
    labels = np.arange(P * BATCH * STEPS) % 3
    images = random.standard_normal((len(labels), 1, 4, 4)) + labels[:, None, None, None]
    return Dataset((images.astype(np.float32), labels), (images[:9].astype(np.float32), labels[:9]))


DATASETS.add("pixels", f"{__name__}:pixels")
GIVEN = {"data": "pixels", "epochs": 1, "model": "cnn,width=2"}


@contextlib.contextmanager
def arrays_in(memory):
    """Methods of jobs in the block are given arrays of that kind; what takes them from a device takes the host's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(means, "DeviceMean", means.HostMean)
        patch.setattr(Placement, "agreed", classmethod(lambda cls, settings, comm: cls("cpu", memory)))
        yield


def trained(comm, method, output, memory, **options):
    with arrays_in(memory):
        return train(comm, method, output, **{**GIVEN, **options})


@pytest.mark.parametrize("memory", ["staged", "device"])
@pytest.mark.parametrize("optimizer", ["sgd,rate=0.1", "sgd,rate=0.1,momentum=0.9,weight_decay=0.01", "adam"])
def test_update_rules_are_those_of_the_host_bit_for_bit(comm, output, memory, optimizer):
    """One rank's, since sums over ranks have no order."""
    with pc.Communicator(comm.mpi_comm.Split(comm.rank)) as alone:
        for where in ("host", memory):
            trained(alone, "eager,policy=full", output / f"{where}-{comm.rank}", where, optimizer=optimizer)
    expected, found = (weights_in_of_rank_0(output / f"{where}-{comm.rank}") for where in ("host", memory))
    np.testing.assert_array_equal(found, expected)
