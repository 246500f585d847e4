"""PyTorch's DistributedDataParallel as a method, beside ours."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

import pycollectives as pc
from pycollectives.train import job
from pycollectives.train.datasets import DATASETS
from pycollectives.train.datasets.base import Dataset
from pycollectives.train.settings import Settings

pytest.importorskip("torch")

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


def test_ddp_is_synchronous_sgd(tmp_path, monkeypatch):
    monkeypatch.setattr(DATASETS, "_entries", dict(DATASETS._entries))
    DATASETS.add("images", f"{__name__}:images")
    output = Path(WORLD.bcast(str(tmp_path)))
    settings = {"model": "cnn,width=4", "data": "images", "batch": 24, "epochs": 3, "optimizer": "sgd,rate=0.05"}
    weights, curves = [], []
    for method in ("synchronous", "ddp"):
        with pc.Communicator(WORLD) as comm:
            summary = job.run(Settings.of({**settings, "method": method, "output": output / method}), comm)
        assert summary.finished
        assert summary.same_everywhere
        folder = output / method / "checkpoint"
        with np.load(folder / (folder / "latest").read_text() / f"rank-{WORLD.rank:04d}.npz") as file:
            weights.append(file["weights"])
        curves.append([point.loss for point in summary.curve])
    np.testing.assert_allclose(*weights, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(*curves, rtol=1e-3)
    assert curves[0][-1] < curves[0][0]
