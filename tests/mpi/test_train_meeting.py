"""Where all ranks of a training meet, those that wait say on stderr who has not come."""

from __future__ import annotations

import re
import time

import pytest
from mpi4py import MPI

import pycollectives as pc
from pycollectives.train.control import ControlChannel

WORLD = MPI.COMM_WORLD
LATE = WORLD.size - 1


@pytest.mark.mpi(min_size=3)
def test_ranks_that_wait_say_who_has_not_come(monkeypatch, caplog):
    """Rank 0 warns after 1.5 s. Rank 1, which has waited for less long by then, is not named."""
    monkeypatch.setenv("PYC_STALL_WARNING", "1.5")
    with pc.Communicator(WORLD) as comm, ControlChannel(comm) as control:
        control.barrier()
        time.sleep({1: 0.8, LATE: 2.6}.get(WORLD.rank, 0.0))
        control.barrier()
    told = caplog.messages
    if WORLD.rank == 0:
        line = (
            rf"pycollectives: rank 0 of {WORLD.size}: barrier of all ranks in the training: "
            rf"not complete after ([0-9.]+) s; have not come: rank {LATE}\."
        )
        assert len(told) == 1, told
        found = re.fullmatch(line, told[0])
        assert found, told
        assert float(found[1]) >= 1.5
    if WORLD.rank == LATE:
        assert told == []


def test_without_a_long_wait_nothing_is_said(monkeypatch, caplog):
    monkeypatch.setenv("PYC_STALL_WARNING", "none")
    with pc.Communicator(WORLD) as comm, ControlChannel(comm) as control:
        time.sleep(0.2 if WORLD.rank == LATE else 0.0)
        control.barrier()
    assert caplog.messages == []
