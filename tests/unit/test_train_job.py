"""A training job on one rank: what it does to its files, and before it waits for other ranks."""

from __future__ import annotations

import pytest
from mpi4py import MPI

import pycollectives as pc
from pycollectives.train import job
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


def test_a_curve_that_cannot_be_made_fails_before_the_ranks_meet(comm, tmp_path, monkeypatch):
    """Afterwards the others are where they do not hear of it: rank 0 has it alone."""
    monkeypatch.setattr(Peers, "meet", lambda peers: pytest.fail("rank 0 meets the others, and has no curve"))
    (tmp_path / "curve").touch()
    with pytest.raises(FileExistsError):
        train(comm, tmp_path, epochs=1)
