"""What a training on one rank refuses or clears away, so that it does not mix with another."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from pathlib import Path

import numpy as np
import pytest
import train_jobs
from mpi4py import MPI
from train_jobs import WORLD, train

import pycollectives as pc
from pycollectives.testing import run_ranks
from pycollectives.train import output
from pycollectives.train.agreement import require_same_settings
from pycollectives.train.archive import read
from pycollectives.train.datasets.base import Dataset
from pycollectives.train.settings import Settings


@pytest.fixture
def comm():
    with pc.Communicator(MPI.COMM_WORLD) as made:
        yield made


# --- Settings longer than what ranks exchange


def compared(*settings):
    """What ranks, each with its own settings, find out."""
    return run_ranks(
        len(settings),
        lambda comm: require_same_settings(settings[comm.rank], comm, resume=False),
        return_exceptions=True,
    )


def test_settings_may_be_long():
    kinds = ("method", "model", "data", "optimizer", "schedule", "load")
    settings = Settings.of({**{kind: f"a,b={2000 * chr(0x1F600)}" for kind in kinds}, "seed": 10**2000})
    assert compared(settings, settings) == [None, None]


@pytest.mark.parametrize("other", ["constant", "milestones,at=" + ":".join(map(str, range(1499)))])
def test_long_settings_that_differ_are_named(other):
    schedules = ["milestones,at=" + ":".join(map(str, range(1500))), other]
    for error in compared(*(Settings.of({"schedule": one}) for one in schedules)):
        assert isinstance(error, pc.MismatchError)
        assert "schedule: milestones,at=0:1:2" in str(error)


# --- Two jobs in one folder


def test_a_folder_in_which_another_training_writes_is_refused(comm, tmp_path):
    with output.locked(tmp_path, WORLD):
        with pytest.raises(ValueError, match=rf"training job is writing to {tmp_path} \(process {os.getpid()} on \w"):
            train(comm, "synchronous", tmp_path, epochs=1)
        assert [path.name for path in tmp_path.iterdir()] == [".lock"]
    assert train(comm, "synchronous", tmp_path, epochs=1).finished
    assert train(comm, "synchronous", tmp_path, epochs=1).finished, "the lock of a job ends with it"


def test_a_folder_is_locked_until_the_training_has_ended(comm, tmp_path):
    def is_signalled():
        with pytest.raises(ValueError, match="another training"), output.locked(tmp_path, MPI.COMM_SELF):
            pass
        asked.append(1)
        return False

    asked = []
    assert train(comm, "synchronous", tmp_path, epochs=1, signalled=is_signalled).finished
    assert asked


def test_a_lock_that_is_a_link_is_not_followed(comm, tmp_path):
    (tmp_path / "precious").write_text("content")
    (tmp_path / ".lock").symlink_to(tmp_path / "precious")
    with pytest.raises(ValueError, match=r"output: .*symbolic links"):
        train(comm, "synchronous", tmp_path, epochs=1)
    assert (tmp_path / "precious").read_text() == "content"


def test_a_file_system_without_locks(comm, tmp_path, monkeypatch):
    def fails(*arguments):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", fails)
    assert train(comm, "synchronous", tmp_path, epochs=1).finished


# --- Checkpoints that are not whole


def test_a_checkpoint_of_more_ranks_is_resumed_though_their_files_are_lost(comm, tmp_path):
    """Replicas were equal when it was written."""
    whole = train(comm, "synchronous", tmp_path / "whole", epochs=2)
    tmp_path /= "run"
    train(comm, "synchronous", tmp_path, epochs=1)
    (path,) = tmp_path.glob("checkpoint/step-*/rank-0000.npz")
    arrays = read(path)
    where = {**json.loads(str(arrays["where"])), "ranks": 2}
    np.savez(path, **{**arrays, "where": np.array(json.dumps(where))})
    resumed = train(comm, "synchronous", tmp_path, epochs=2, resume=True)
    assert resumed.curve[-1].loss == whole.curve[-1].loss


NOT_THERE = {"": "expected the name of a checkpoint in this folder, got ''", "step-00000099.9": "which does not exist"}


@pytest.mark.parametrize("name", NOT_THERE)
def test_a_checkpoint_that_is_not_there_is_refused(comm, tmp_path, name):
    train(comm, "synchronous", tmp_path, epochs=1)
    (tmp_path / "checkpoint" / "latest").write_text(name)
    with pytest.raises(ValueError, match=NOT_THERE[name]):
        train(comm, "synchronous", tmp_path, epochs=1, resume=True)


# --- What a run that begins anew finds


OF_BEFORE = ("summary.json", "metrics-rank-0000.jsonl", "metrics-rank-0002.jsonl")


def test_a_training_that_begins_anew_leaves_nothing_of_the_one_before(comm, tmp_path):
    """Which had more ranks."""
    for name in (*OF_BEFORE, "status"):
        (tmp_path / name).write_text('{"number": 99}\n')
    train(comm, "synchronous", tmp_path, epochs=1)
    written = {".lock", "checkpoint", "curve", "metrics-rank-0000.jsonl"}
    assert {path.name for path in tmp_path.iterdir()} == {*written, "status"}, "status is not ours"


def test_results_are_deleted_when_their_checkpoint_is_forgotten(comm, tmp_path, monkeypatch):
    """A node may crash in between, and the job be resumed."""
    train(comm, "synchronous", tmp_path, epochs=1)
    for name in OF_BEFORE:
        (tmp_path / name).touch()
    done = []
    unlink = Path.unlink
    monkeypatch.setattr(os, "fsync", lambda file: done.append(Path(os.readlink(f"/proc/self/fd/{file}")).name))
    monkeypatch.setattr(Path, "unlink", lambda path, **options: (done.append(path.name), unlink(path, **options)))
    train(comm, "synchronous", tmp_path, epochs=1)
    first = done.index("latest")
    assert done[first + 1] == "checkpoint"
    assert {*OF_BEFORE} == {*done[first + 2 : first + 5]}


def test_a_training_that_goes_on_deletes_no_results(comm, tmp_path):
    train(comm, "synchronous", tmp_path, epochs=1)
    for name in OF_BEFORE:
        (tmp_path / name).touch()
    train(comm, "synchronous", tmp_path, epochs=1, resume=True)
    assert {*OF_BEFORE} <= {path.name for path in tmp_path.iterdir()}


# --- Data that differ where settings do not


def data_of(labels):
    return Dataset((np.zeros((4, 2), np.float32), labels), (np.zeros((4, 2), np.float32), labels))


def test_labels_tell_data_apart():
    labels = np.array([0, 1, 2, 1])
    prints = data_of(labels).fingerprints
    assert prints == data_of(labels.astype(np.uint8)).fingerprints
    assert prints != data_of(labels[::-1]).fingerprints
    assert prints["train"] == prints["validation"]
    assert prints["train"].startswith("(4, 2), (4,), labels ")


def test_values_that_are_computed_do_not():
    """They may differ in their last bits between processors, on which one job may run."""
    values = np.linspace(0, 1, 4, dtype=np.float32)
    assert data_of(values).fingerprints == data_of(np.nextafter(values, 2, dtype=np.float32)).fingerprints


def test_a_job_is_not_resumed_with_other_data(comm, tmp_path, monkeypatch):
    train(comm, "synchronous", tmp_path, epochs=1)
    inputs, labels = train_jobs.blobs().train
    others = Dataset((inputs, labels[::-1]), (inputs, labels))
    with monkeypatch.context() as patch:
        patch.setattr(train_jobs, "blobs", lambda: others)
        with pytest.raises(ValueError, match=r"is from a run with examples = .*; this run has "):
            train(comm, "synchronous", tmp_path, epochs=1, resume=True)
    assert train(comm, "synchronous", tmp_path, epochs=1, resume=True).finished
