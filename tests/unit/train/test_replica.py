"""What a step of a replica tells, and when a checkpoint is on the disk: seen on one rank."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

from pycollectives.train import checkpoint, loop, replica
from pycollectives.train.datasets.base import Dataset
from pycollectives.train.models.mlp import MLP
from pycollectives.train.optimizers import SGD
from pycollectives.train.synchronizers import GradientSynchronizer, Synchronizer


class Part:
    """Anything that a step calls, each call of which takes so many seconds of a clock."""

    def __init__(self, clock, **seconds):
        self.weights = self.gradient = None
        self.state = self.load_state = None
        for name, duration in seconds.items():
            setattr(self, name, lambda *arguments, duration=duration: clock.append(clock[-1] + duration) or 0)


def test_a_rank_waits_in_the_method_and_computes_in_all_else(monkeypatch):
    class Waiting(Synchronizer):
        def begin(self, weights, number):
            clock.append(clock[-1] + 64)
            return number + 2

        def update(self, model, optimizer, number):
            clock.append(clock[-1] + 4)
            super().update(model, optimizer, number)
            clock.append(clock[-1] + 8)

    clock = [0.0]
    monkeypatch.setattr(replica.time, "perf_counter", lambda: clock[-1])
    model, optimizer, load = Part(clock, forward=1, backward=2), Part(clock, update=16), Part(clock, work=32)
    one = replica.Replica(model, optimizer, Waiting())
    number, waited_s = one.begin(3)
    step = one.step(number, (), load.work, waited_s)
    assert (step.number, step.compute_s, step.wait_s) == (5, 1 + 2 + 16 + 32, 64 + 4 + 8)


def test_a_method_that_forgets_to_return_the_gradient_is_named():
    class Forgetful(GradientSynchronizer):
        def combine(self, gradient):
            pass

    part = Part([0.0], forward=0, backward=0, update=0, work=0)
    with pytest.raises(TypeError, match=r"Forgetful\.combine: expected an array, got None"):
        replica.Replica(part, part, Forgetful()).step(0, (), part.work)


@pytest.mark.parametrize(
    ("said", "error", "text"),
    [
        (None, TypeError, r"Astray\.begin: expected the number of a step, got None: is a return missing\?"),
        (4.0, TypeError, r"Astray\.begin: expected the number of a step, got 4\.0"),
        (3, ValueError, r"Astray\.begin: expected step 4 or a later one, got 3"),
    ],
)
def test_a_method_that_begins_no_step_that_could_be_next_is_named(said, error, text):
    class Astray(Synchronizer):
        def begin(self, weights, number):
            return said

    part = Part([0.0])
    with pytest.raises(error, match=text):
        replica.Replica(part, part, Astray()).begin(4)


def test_files_of_a_checkpoint_are_on_the_disk_before_it_is_the_newest(tmp_path, monkeypatch):
    done = []
    replaced = Path.replace
    monkeypatch.setattr(os, "fsync", lambda file: done.append(Path(os.readlink(f"/proc/self/fd/{file}")).name))
    monkeypatch.setattr(Path, "replace", lambda self, new: (done.append(f"replace {new.name}"), replaced(self, new)))
    data = (np.ones((4, 2), np.float32), np.zeros(4, np.intp))
    model = MLP(Dataset(train=data, validation=data), hidden=2)
    one = replica.Replica(model, SGD(model.weights, lambda number: 1.0), Synchronizer())
    checkpoint.save(tmp_path, MPI.COMM_SELF, loop.Training(8, number=3), one, {})
    name = "step-00000003.0"
    assert done == ["rank-0000.npz", name, "latest.new", "replace latest", tmp_path.name]
    assert checkpoint.newest(tmp_path) == name


@pytest.mark.parametrize("name", ["", ".", "..", "../other/step-00000003.0", "/tmp/step-00000003.0", "step-3.0/x"])
def test_only_a_folder_beside_it_is_the_newest_checkpoint(tmp_path, name):
    (tmp_path / "latest").write_text(name)
    with pytest.raises(ValueError, match=r"latest: expected the name of a checkpoint in this folder, got "):
        checkpoint.newest(tmp_path)


def test_a_link_is_no_checkpoint(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "step-00000003.0").symlink_to(tmp_path / "elsewhere")
    (folder / "latest").write_text("step-00000003.0")
    with pytest.raises(ValueError, match="which does not exist"):
        checkpoint.load(folder, MPI.COMM_SELF, loop.Training(8), None, {})


def test_a_checkpoint_is_forgotten_on_the_disk(tmp_path, monkeypatch):
    (tmp_path / "latest").write_text("step-00000003.0")
    forced = []
    monkeypatch.setattr(os, "fsync", lambda file: forced.append([*tmp_path.iterdir()]))
    checkpoint.forget(tmp_path, MPI.COMM_SELF)
    assert forced == [[]], "the folder without the name"
    checkpoint.forget(tmp_path, MPI.COMM_SELF)
    checkpoint.forget(tmp_path / "none", MPI.COMM_SELF)
