"""Errors of MPI behind which there is a death, though their class does not say so."""

import time
from types import SimpleNamespace

import pytest
from mpi4py import MPI

import pycollectives as pc
from pycollectives.agreement import deaths


def communicator(dies_after, has_fault_tolerance=True):
    """Return four ranks. Rank 2 dies."""
    dies_at = time.monotonic() + dies_after

    def failed():
        if not has_fault_tolerance:
            raise NotImplementedError
        dead = [2] if time.monotonic() >= dies_at else []
        return SimpleNamespace(Translate_ranks=lambda ranks, group: dead)

    return SimpleNamespace(Get_group=lambda: None, Get_failed=failed)


@pytest.fixture(autouse=True)
def fault_tolerant(monkeypatch):
    monkeypatch.setattr(deaths, "is_fault_tolerant", lambda: True)


@pytest.mark.parametrize("error_class", [MPI.ERR_OTHER, MPI.ERR_INTERN, MPI.ERR_PROC_FAILED, MPI.ERR_REVOKED])
def test_a_death_that_is_reported_after_the_error(error_class):
    """Open MPI's nonblocking collectives raise MPI_ERR_OTHER some milliseconds before it reports the death."""
    dies_after = 0.05 if error_class in (MPI.ERR_OTHER, MPI.ERR_INTERN) else 0
    with (
        pytest.raises(pc.RankFailedError, match="rank 2 died") as raised,
        deaths.naming_failed_ranks(communicator(dies_after)),
    ):
        raise MPI.Exception(error_class)
    assert raised.value.ranks == (2,)


@pytest.mark.parametrize("has_fault_tolerance", [True, False])
def test_an_error_without_a_death(monkeypatch, has_fault_tolerance):
    monkeypatch.setattr(deaths, "REPORT_S", 0.05)
    comm = communicator(60, has_fault_tolerance)
    with pytest.raises(MPI.Exception, match="MPI_ERR_OTHER"), deaths.naming_failed_ranks(comm):
        raise MPI.Exception(MPI.ERR_OTHER)


def test_a_job_that_ends_at_a_death_does_not_wait_for_its_report(monkeypatch):
    monkeypatch.setattr(deaths, "is_fault_tolerant", lambda: False)
    begin = time.monotonic()
    with pytest.raises(MPI.Exception), deaths.naming_failed_ranks(communicator(0.5)):
        raise MPI.Exception(MPI.ERR_OTHER)
    assert time.monotonic() - begin < 0.4


def test_the_library_names_no_rank():
    """Its own error without ranks gets those that MPI reports."""
    with pytest.raises(pc.RankFailedError) as raised, deaths.naming_failed_ranks(communicator(0)):
        raise pc.RankFailedError("a rank died")
    assert raised.value.ranks == (2,)
