"""Training on several hosts that have their files in common: stopped and resumed it goes on as if it had not been."""

from __future__ import annotations

import json

import numpy as np
import pytest
from nightly import nightly_unless
from on_hosts import launched

DATA = ["--model", "hyperplane", "--data", "hyperplane,dimensions=16,points=192,validation=32", "--batch", "24"]
EPOCHS, STEPS = 6, 48
METHODS = ["synchronous", "eager,policy=quorum:2", "ripples,groups=smart"]


def train(folder, method, epochs, *more):
    """Train on two hosts of two ranks; what the summary says, the steps of the last rank, and the weights of all."""
    job = launched(
        *("2x2", "-m", "pycollectives", "train", method, *DATA, "--optimizer", "sgd,rate=0.01,momentum=0.9"),
        *("--epochs", epochs, "--output", folder, *more),
    )
    assert job.status == 0, job
    checkpoint = folder / "checkpoint"
    files = sorted((checkpoint / (checkpoint / "latest").read_text()).glob("rank-*.npz"))
    lines = (folder / "metrics-rank-0003.jsonl").read_text().splitlines()
    steps = [json.loads(line)["number"] for line in lines]
    return json.loads((folder / "summary.json").read_text()), steps, [np.load(path)["weights"] for path in files]


@pytest.mark.timeout(400)  # three jobs, each with a limit of its own
@pytest.mark.parametrize("method", nightly_unless(METHODS[0].__eq__, METHODS))
def test_a_training_is_resumed(tmp_path, method):
    """Where no rank is ever missing, bit for bit."""
    train(tmp_path / "a", method, EPOCHS / 2)
    summary, steps, weights = train(tmp_path / "a", method, EPOCHS, "--resume")
    assert (summary["finished"], summary["ranks"], summary["steps"]) == (True, 4, STEPS)
    assert summary["is_same_on_all_ranks"]
    assert len(weights) == 4
    assert steps == list(range(STEPS))
    if method == "synchronous":
        _, _, undisturbed = train(tmp_path / "b", method, EPOCHS)
        np.testing.assert_array_equal(weights, undisturbed)
