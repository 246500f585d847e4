"""How programs end: by an exception, by Ctrl-C, without close, after MPI.Finalize, at different times."""

from __future__ import annotations

import re

import pytest
from launcher import mpirun


@pytest.mark.parametrize("where", ["wait", "allreduce", "flush", "communicator", "creation", "close"])
def test_ctrl_c_ends_a_wait(where):
    """A waiting call answers Ctrl-C at once, wherever it waits."""
    outcome = mpirun(2, "interrupted.py", where, limit=40, PYC_EXIT_TIMEOUT="2")
    (interrupted, *_) = outcome.said(0)
    assert interrupted.startswith("interrupted after")
    assert float(interrupted.split()[-1]) < 5
    if where != "creation":  # see test_a_rank_does_not_create_what_the_others_create
        assert outcome.status == 0
    assert "Traceback" not in outcome.err


@pytest.mark.parametrize("policy", ["solo", "majority", "quorum:2"])
@pytest.mark.parametrize("where", ["between", "in flight"])
def test_an_exception_on_one_rank_stops_nobody(policy, where):
    """The others go on without it and end cleanly, with the same total; what is discarded is said."""
    outcome = mpirun(4, "one_raises.py", policy, where, limit=60)
    assert "KeyError: 'of rank 1'" in outcome.err
    assert "ended with KeyError: closed without flush" in outcome.err
    assert outcome.status == 1
    totals = [outcome.said(rank) for rank in (0, 2, 3)]
    assert totals[0] == totals[1] == totals[2]
    (line,) = totals[0]
    contributed = 3 * 10 + (3 if where == "between" else 4)
    discarded = sum(map(int, re.findall(r"closed without flush, (\d+) contributions? discarded", outcome.err)))
    assert int(line.split()[1]) == contributed - discarded
    assert outcome.said(1) == []
    lines = re.findall(r"rank (\d) of 4: rank 1 left '[^']+' by KeyError; the others continue without it", outcome.err)
    assert sorted(lines) == ["0", "2", "3"]


@pytest.mark.parametrize("exceptions", ["same", "different"])
def test_exceptions_on_all_ranks_one_after_the_other(exceptions):
    """That others have left is printed only if their exception is another: it may be the cause."""
    outcome = mpirun(4, "all_raise.py", exceptions, limit=60)
    assert outcome.status == 0
    assert [outcome.said(rank) for rank in (1, 2, 3)] == [["KeyError"]] * 3
    lines = re.findall(r"rank (\d) of 4: rank 0 left '[^']+' by ValueError", outcome.err)
    assert sorted(lines) == ([] if exceptions == "same" else ["1", "2", "3"])
    assert outcome.err.count("continue without it") == len(lines)


@pytest.mark.parametrize("who", ["all", "one", "in flight"])
def test_a_program_that_ends_with_a_communicator_open(who):
    """No hang, and one line per rank that says what was open."""
    outcome = mpirun(3, "not_closed.py", who, limit=60)
    assert outcome.status == 0
    for rank in range(3):
        assert outcome.said(rank) == ["end of program"]
        line = f"pycollectives: rank {rank}: the program ends with a communicator that is not closed"
        forgot = who != "one" or rank == 1
        assert (line in outcome.err) == forgot
    assert "gradients" in outcome.err
    assert "Traceback" not in outcome.err


def test_finalize_before_close_on_all_ranks():
    """Calls after it are clear errors, `close` is none; no hang."""
    outcome = mpirun(3, "finalized.py", "all", limit=60)
    assert outcome.status == 0
    for rank in range(3):
        said = dict(line.split(": ", 1) for line in outcome.said(rank))
        for call in ("contribute", "flush", "create"):
            assert said[call].startswith("ClosedError")
        assert said["close"] == "fine"


def test_finalize_before_close_on_one_rank():
    """It serves the others' rounds until they have closed."""
    outcome = mpirun(3, "finalized.py", "one", limit=60)
    assert outcome.status == 0
    assert outcome.said(0) == outcome.said(2) == ["closed"]
    assert any("contribute: ClosedError" in line for line in outcome.said(1))


def test_finalize_on_a_server_that_calls_a_function_of_python():
    """MPI.Finalize has Python's global lock: it must give it away, for the function that others wait for."""
    outcome = mpirun(2, "finalized_server.py", limit=60, PYC_EXIT_TIMEOUT="30")
    assert outcome.status == 0
    assert outcome.said(0) == ["finalized"]
    assert outcome.said(1) == ["weights -3.0 -3.0 -3.0"]


@pytest.mark.parametrize("policy", ["solo", "majority", "quorum:3", "full", "all-of:2"])
def test_a_rank_that_leaves_early(policy):
    """The others make ten calls more and are given everything."""
    outcome = mpirun(4, "leaves_early.py", policy, limit=60)
    assert outcome.status == 0
    assert outcome.said(0) == outcome.said(2) == outcome.said(3) == ["total 34"]


@pytest.mark.parametrize("what", ["communicators", "requests"])
def test_two_threads_make_something_from_one_communicator_at_once(what):
    outcome = mpirun(3, "threads_make.py", what, limit=60, PYC_TIMEOUT="20")
    assert outcome.status == 0
    for rank in range(3):
        assert outcome.said(rank) == ["made all"]
