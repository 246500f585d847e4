"""PYC_HEARTBEAT_TIMEOUT as an option of a communicator."""

import numpy as np
import pytest
from mpi4py import MPI

import pycollectives as pc
from pycollectives.agreement.options import Options


def test_it_must_be_the_same_on_all_ranks(monkeypatch):
    said = set()
    for value in ("none", "5", "5.5"):
        monkeypatch.setenv("PYC_HEARTBEAT_TIMEOUT", value)
        said.add(str(Options.checked("thread", None, None, None, lambda: False).signature()))
    assert len(said) == 3


def test_ranks_without_a_progress_thread_cannot_be_heard(monkeypatch):
    monkeypatch.setenv("PYC_HEARTBEAT_TIMEOUT", "5")
    with pytest.raises(ValueError, match=r"PYC_HEARTBEAT_TIMEOUT: expected 'none' under progress='caller'.*, got 5"):
        pc.Communicator(MPI.COMM_SELF, progress="caller")


def test_one_rank_has_no_other_machine(monkeypatch):
    monkeypatch.setenv("PYC_HEARTBEAT_TIMEOUT", "1")
    with pc.Communicator(MPI.COMM_SELF) as comm, comm.partial_allreduce(np.ones(1)) as ar:
        result, _ = ar.allreduce(np.ones(1))
    assert result == [1.0]
