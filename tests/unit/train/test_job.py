"""A training job on one rank: what it does to its files, and before it waits for other ranks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from mpi4py import MPI

import pycollectives as pc
from pycollectives.train import checkpoint, job, metrics
from pycollectives.train.control import ControlChannel
from pycollectives.train.models.hyperplane import Hyperplane
from pycollectives.train.replica import Replica
from pycollectives.train.settings import Settings

STEPS = 4
"""Of an epoch."""


@pytest.fixture
def comm():
    with pc.Communicator(MPI.COMM_SELF) as made:
        yield made


def train(comm, output, *, signalled=lambda: False, resume=False, **settings):
    said = {"model": "hyperplane", "data": f"hyperplane,dimensions=2,points={8 * STEPS},validation=8", "batch": 8}
    return job.run(Settings.of({**said, "output": output, **settings}), comm, is_signalled=signalled, resume=resume)


def killed(*arguments):
    raise KeyboardInterrupt


def test_what_a_job_is_made_of(comm):
    with pytest.raises(TypeError, match=r"settings: expected Settings, such as from Settings\.of, got dict"):
        job.run({"method": "synchronous"}, comm)
    with pytest.raises(TypeError, match=r"comm: expected a pycollectives\.Communicator, got Intracomm"):
        job.run(Settings(), MPI.COMM_SELF)


def test_a_job_is_not_resumed_with_other_options(comm, tmp_path):
    train(comm, tmp_path, epochs=1)
    with pytest.raises(ValueError, match=r"from a run with optimizer = sgd; this run has sgd,rate=0\.2"):
        train(comm, tmp_path, epochs=1, resume=True, optimizer="sgd,rate=0.2")


def test_a_curve_that_cannot_be_made_fails_before_the_ranks_meet(comm, tmp_path, monkeypatch):
    """Afterwards the others are where they do not hear of it: rank 0 has it alone."""
    monkeypatch.setattr(
        ControlChannel, "barrier", lambda control: pytest.fail("rank 0 meets the others, and has no curve")
    )
    (tmp_path / "curve").touch()
    with pytest.raises(FileExistsError):
        train(comm, tmp_path, epochs=1)


def test_a_run_that_begins_anew_and_is_killed_is_not_resumed_from_the_one_before(comm, tmp_path, monkeypatch):
    train(comm, tmp_path, epochs=1)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Replica, "step", killed)
        train(comm, tmp_path, epochs=1)
    assert train(comm, tmp_path, epochs=1, resume=True).finished
    lines = metrics.read(tmp_path / "metrics-rank-0000.jsonl")
    assert [line["number"] for line in lines] == list(range(STEPS))


def test_a_job_that_is_refused_leaves_the_run_before_as_it_is(comm, tmp_path):
    train(comm, tmp_path, epochs=1)
    with pytest.raises(ValueError, match="the number of ranks"):
        train(comm, tmp_path, epochs=1, method="m-synchronous,m=2")
    assert checkpoint.exists(tmp_path / "checkpoint", MPI.COMM_SELF)
    assert len(metrics.read(tmp_path / "metrics-rank-0000.jsonl")) == STEPS


def test_a_run_that_is_killed_just_after_its_checkpoint_has_summed_what_that_has(comm, tmp_path, monkeypatch):
    monkeypatch.setattr(Hyperplane, "forward", lambda model, *batch: float("nan"))
    monkeypatch.setattr(Hyperplane, "backward", lambda model: None)
    save = checkpoint.save
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(checkpoint, "save", lambda *given: killed(save(*given)))
        train(comm, tmp_path, epochs=2, settle_epochs=1)
    assert train(comm, tmp_path, epochs=2, settle_epochs=1, resume=True).not_finite == 2 * STEPS


def test_what_a_resumed_run_reads_is_on_the_disk_before_it_is_needed(comm, tmp_path, monkeypatch):
    done = []
    replaced = Path.replace
    monkeypatch.setattr(os, "fsync", lambda file: done.append(Path(os.readlink(f"/proc/self/fd/{file}")).name))
    monkeypatch.setattr(Path, "replace", lambda self, new: (done.append(f"replace {new.name}"), replaced(self, new)))
    train(comm, tmp_path, epochs=1)
    replica, latest = done.index(f"{STEPS:08d}.npz"), done.index("replace latest")
    assert replica < done.index("curve", replica) < latest, "the replica, and its name"
    assert done.index("end.npz") < done.index("curve", done.index("end.npz"))
    assert done[done.index("replace points.json", latest) - 1] == "points.json.new"


@pytest.mark.parametrize("name", ["points.json", f"{STEPS:08d}.npz"])
def test_a_file_that_cannot_be_read_is_named(comm, tmp_path, name):
    train(comm, tmp_path, epochs=1)
    (tmp_path / "curve" / name).write_bytes(b"")
    with pytest.raises(ValueError, match=f"{name} cannot be read: "):
        train(comm, tmp_path, epochs=1, resume=True)
