"""A training job on one rank: what it does to its files, and before it waits for other ranks."""

from __future__ import annotations

import pytest
from mpi4py import MPI

import pycollectives as pc
from pycollectives.train import checkpoint, job, metrics
from pycollectives.train.loop import Replica
from pycollectives.train.peers import Peers
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


def test_a_curve_that_cannot_be_made_fails_before_the_ranks_meet(comm, tmp_path, monkeypatch):
    """Afterwards the others are where they do not hear of it: rank 0 has it alone."""
    monkeypatch.setattr(Peers, "meet", lambda peers: pytest.fail("rank 0 meets the others, and has no curve"))
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
