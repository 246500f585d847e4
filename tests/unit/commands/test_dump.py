"""Which processes `dump` asks if it is given no numbers: those of one job, and never another's by mistake."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from pycollectives.commands.dump import dump
from pycollectives.diagnostics import flight


@pytest.fixture
def dumped(monkeypatch):
    """Run the command where these jobs are; its exit code, what it printed, and the processes that it asked."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)

    def run(jobs, *arguments):
        asked = []

        def request(pids, timeout):
            asked.append((list(pids), timeout))
            return {}, []

        monkeypatch.setattr(flight, "listening", lambda: sorted(pid for pids in jobs.values() for pid in pids))
        monkeypatch.setattr(flight, "jobs", lambda found: jobs)
        monkeypatch.setattr(flight, "request", request)
        done = CliRunner().invoke(dump, arguments)
        return done.exit_code, done.output, asked

    return run


TWO = {"MPI job a": [11, 12], "SLURM job 7": [21, 22]}


def test_the_only_job_is_asked(dumped):
    assert dumped({"MPI job a": [11, 12]}) == (0, "", [([11, 12], 5.0)])


def test_of_several_jobs_none_is_asked_and_all_are_listed(dumped):
    code, text, asked = dumped(TWO)
    assert (code, asked) == (1, [])
    assert text == (
        "Error: you have several jobs here: pass the PIDs of one job, or --all (MPI job a: 11 12; SLURM job 7: 21 22)\n"
    )


def test_inside_of_a_job_of_slurm_that_job_is_asked(dumped, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert dumped(TWO) == (0, "", [([21, 22], 5.0)])


def test_another_job_of_slurm_is_not_asked(dumped, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "8")
    code, text, asked = dumped(TWO)
    assert (code, asked) == (1, [])
    assert "several jobs" in text


def test_all_are_asked_if_the_user_says_so(dumped):
    assert dumped(TWO, "--all", "--timeout", "2") == (0, "", [([11, 12, 21, 22], 2.0)])


def test_those_that_are_named_are_asked_whatever_else_there_is(dumped):
    assert dumped(TWO, "12", "22") == (0, "", [([12, 22], 5.0)])


def test_without_a_process_it_says_so(dumped):
    code, text, asked = dumped({})
    assert (code, asked) == (1, [])
    assert text == "Error: none of your processes on this machine has a pycollectives communicator\n"
