"""PyTorch's DistributedDataParallel as a method, beside ours."""

from __future__ import annotations

import contextlib
import gc
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

import pycollectives as pc
from pycollectives.train import job
from pycollectives.train.datasets import DATASETS
from pycollectives.train.datasets.base import Dataset
from pycollectives.train.replica import Replica
from pycollectives.train.settings import Settings

torch = pytest.importorskip("torch")

from train_devices import arrays_in  # noqa: E402

WORLD = MPI.COMM_WORLD

if WORLD.size not in (2, 3):
    pytest.skip("at 2 and 3 ranks: importing PyTorch takes each rank seconds", allow_module_level=True)


def images():
    """Of three classes, each bright in a corner of its own."""
    random = np.random.default_rng(0)
    labels = np.arange(96) % 3
    pixels = random.random((96, 1, 8, 8), dtype=np.float32)
    pixels[labels == 1, :, :4, :4] += 1
    pixels[labels == 2, :, 4:, 4:] += 1
    return Dataset((pixels, labels), (pixels, labels))


SETTINGS = {"model": "cnn,width=4", "data": "images", "batch": 24, "epochs": 3, "optimizer": "sgd,rate=0.05"}


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    monkeypatch.setattr(DATASETS, "_entries", dict(DATASETS._entries))
    DATASETS.add("images", f"{__name__}:images")


def threads_and_sockets():
    """Of this process."""
    gc.collect()
    places = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # that of the folder itself
            places.append(str(entry.readlink()))
    return len(list(Path("/proc/self/task").iterdir())), sum(place.startswith("socket:") for place in places)


def test_jobs_one_after_the_other_leave_nothing():
    """No process group, and no more threads and sockets than one job: PyTorch ends the last group's with the next."""
    left = []
    for method in ("ddp", "synchronous", "ddp", "ddp"):
        with pc.Communicator(WORLD) as comm:
            assert job.run(Settings.of({**SETTINGS, "method": method, "epochs": 1}), comm).finished
        assert not torch.distributed.is_initialized()
        left.append(threads_and_sockets())
    assert left == left[:1] * 4


def test_the_others_learn_of_a_rank_that_fails(monkeypatch):
    """By gloo, in whose backward pass they wait."""
    step = Replica.step

    def raises(replica, number, *arguments):
        if (WORLD.rank, number) == (1, 2):
            raise KeyError("of rank 1")
        return step(replica, number, *arguments)

    monkeypatch.setattr(Replica, "step", raises)
    expected = KeyError if WORLD.rank == 1 else RuntimeError
    with pytest.raises(expected), pc.Communicator(WORLD) as comm:
        job.run(Settings.of({**SETTINGS, "method": "ddp"}), comm)


@pytest.mark.parametrize("method", ["synchronous", "ddp"])
def test_replicas_with_batch_normalisation_are_equal(method):
    """Running statistics included, which are of each rank's own batches."""
    said = {**SETTINGS, "model": "resnet32,depth=8,width=2", "epochs": 1, "method": method}
    with pc.Communicator(WORLD) as comm:
        assert job.run(Settings.of(said), comm).is_same_on_all_ranks


def test_ddp_is_synchronous_sgd(output):
    """Also where the update rule is applied to tensors, as on a device."""
    weights, curves = [], []
    for method, memory in (("synchronous", "host"), ("ddp", "host"), ("ddp", "device")):
        folder = output / f"{method}-{memory}"
        with pc.Communicator(WORLD) as comm, arrays_in(memory):
            summary = job.run(Settings.of({**SETTINGS, "method": method, "output": folder}), comm)
        assert summary.finished
        assert summary.is_same_on_all_ranks
        assert (summary.wait_fraction is None) == (method == "ddp")
        folder /= "checkpoint"
        with np.load(folder / (folder / "latest").read_text() / f"rank-{WORLD.rank:04d}.npz") as file:
            weights.append(file["weights"])
        curves.append([point.loss for point in summary.curve])
    for ours, losses in zip(weights[1:], curves[1:], strict=True):
        np.testing.assert_allclose(ours, weights[0], rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(losses, curves[0], rtol=1e-3)
    assert curves[0][-1] < curves[0][0]
