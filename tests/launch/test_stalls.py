"""What a waiting rank is told of the rank that it waits for: asleep, stopped, or elsewhere."""

from __future__ import annotations

import re

import pytest
from launcher import mpirun
from nightly import in_turn

shapes = pytest.mark.parametrize("per_node", ["1", "2", "all"], ids=["flat", "mixed", "board"])


@shapes
def test_the_designated_rank_is_asleep(per_node):
    """The time limit is kept; the text names the collective, the round and the missing rank alone."""
    outcome = mpirun(4, "designated_sleeps.py", limit=60, PYC_RANKS_PER_NODE=per_node)
    assert outcome.status == 0
    designated = next(int(line.split()[1]) for rank in range(4) for line in outcome.said(rank) if "designated" in line)
    for rank in {0, 1, 2, 3} - {designated}:
        stall, then = outcome.said(rank)
        assert re.fullmatch(
            rf"stall: partial allreduce 'gradients', round 0: .* have not arrived: rank {designated} "
            r"\(alive; last call [0-9.]+ s ago\)\.",
            stall,
        )
        assert then == f"then: {designated}"


@shapes
def test_a_stopped_rank(per_node):
    """It is told apart from a rank that is only late, and the round completes when it wakes up."""
    outcome = mpirun(3, "stopped.py", limit=60, PYC_RANKS_PER_NODE=per_node)
    # Another machine only knows that it does not answer.
    expected = r"do not answer \(stopped or gone\)" if per_node == "1" else r"stopped \(SIGSTOP\)"
    assert outcome.status == 0
    for rank in (0, 2):
        stall, total = outcome.said(rank)
        assert "'gradients', round 0" in stall
        assert re.search(expected + r": rank 1\.", stall)
        assert "not arrived" not in stall
        assert total == "sum 3.0"
    assert outcome.said(1) == ["sum 3.0"]


@shapes
def test_a_rank_waits_in_another_collective(per_node):
    outcome = mpirun(4, "elsewhere.py", limit=60, PYC_RANKS_PER_NODE=per_node)
    assert outcome.status == 0
    for rank in (0, 2, 3):
        (stall,) = outcome.said(rank)
        assert stall.endswith("; have not arrived, but wait in 'weights': rank 1.")


def test_a_rank_does_not_create_what_the_others_create():
    """They are told which rank it is, then that the communicator is of no use any more; the program ends."""
    outcome = mpirun(3, "not_created.py", limit=60, PYC_EXIT_TIMEOUT="2")
    for rank in (0, 2):
        stall, again, _ = outcome.said(rank)
        assert re.match(r"stall: partial_allreduce: rank 1 did not call it within [45]", stall)
        assert "unusable" in again
    assert outcome.status == 0
    assert "Traceback" not in outcome.err


def test_a_rank_creates_after_the_others_gave_up():
    """It is told who gave up; no rank has the collective, so closing works."""
    outcome = mpirun(3, "created_late.py", limit=60)
    assert outcome.status == 0
    for rank in (0, 2):
        assert outcome.said(rank)[0].startswith("stall: partial_allreduce: rank 1 did not call it within ")
    assert outcome.said(1)[0].startswith("stall: partial_allreduce: ranks 0, 2 gave up waiting")


def test_a_rank_makes_the_communicator_after_the_others_gave_up():
    """It is told within its own time limit."""
    outcome = mpirun(3, "late_communicator.py", limit=60)
    assert outcome.status == 0
    for rank in range(3):
        stall, _ = outcome.said(rank)
        assert stall.startswith("stall: Communicator: some ranks did not call it within 0.5 s")


def test_a_rank_does_not_make_the_communicator():
    """Before there is an engine nobody knows which rank is missing; the time limit is kept, and the program ends."""
    outcome = mpirun(3, "no_communicator.py", limit=60)
    assert outcome.status == 0
    for rank in (0, 2):
        stall, _ = outcome.said(rank)
        assert stall.startswith("stall: Communicator: some ranks did not call it within 0.5 s")


@pytest.mark.parametrize("program", ["no_communicator.py", "late_communicator.py"])
def test_ranks_that_make_the_communicator_alone_say_so_on_stderr(program):
    """Once, here after 0.3 s of 0.5; the rank that comes late and finds nobody says so too."""
    outcome = mpirun(3, program, limit=60, PYC_STALL_WARNING="0.3")
    assert outcome.status == 0
    warned = [rank for rank in range(3) if program == "late_communicator.py" or rank != 1]
    warnings = [line for line in outcome.err.splitlines() if line.startswith("pycollectives: rank ")]
    for rank, line in zip(warned, sorted(warnings), strict=True):
        assert re.fullmatch(
            rf"pycollectives: rank {rank} of 3: Communicator: not complete after 0\.[3-9]\d* s; some ranks have not "
            r"called it \(it is collective, and MPI does not report which\)\.",
            line,
        )


@pytest.mark.alone  # others must answer in half a second
@pytest.mark.parametrize(("between", "per_node"), in_turn(["mean of MPI", "barrier of MPI"], ["1", "2", "all"]))
def test_what_waits_in_mpi_without_a_flush_is_told_on_stderr(between, per_node):
    """By default after 30 s; here after one, and again after two and four. No time limit is needed for it."""
    outcome = mpirun(3, "not_flushed.py", between, limit=60, PYC_RANKS_PER_NODE=per_node, PYC_STALL_WARNING="1")
    assert outcome.status == 0
    assert outcome.said(0)[0] == "stalled"
    warnings = [line for line in outcome.err.splitlines() if line.startswith("pycollectives: rank ")]
    for line, seconds in zip(warnings, (1, 2, 4), strict=True):
        told = re.match(
            r"pycollectives: rank 0 of 3: partial allreduce 'gradients', round 1: not complete after ([0-9.]+) s; "
            r"have not arrived: ranks 1, 2 \(alive; last call [0-9.]+ s ago\)\.",
            line,
        )
        assert told
        assert seconds <= float(told[1]) < seconds + 0.9
        assert "must flush() before it" in line
        assert "pycollectives dump" in line


def test_the_own_calls_say_at_once_that_a_flush_is_missing():
    """And after the flush that they ask for they work. No shape matters: nothing was sent."""
    calls = ["mean", "is_same_on_all_ranks", "partial_allreduce", "preduce"]
    outcome = mpirun(3, "not_flushed.py", *calls, limit=60, PYC_RANKS_PER_NODE="2")
    assert outcome.status == 0
    for rank in range(3):
        said = outcome.said(rank)
        for call, refusal, result in zip(calls, said[::2], said[1::2], strict=True):
            assert refusal.startswith(f"refused: {call}: flush first: ")
            assert "'gradients'" in refusal
            assert result.startswith("result ")
            assert float(refusal.rpartition(" after ")[2]) < 1


def test_who_waits_for_a_creation_says_so():
    """One rank says it for all: the first of those that have come."""
    outcome = mpirun(3, "not_created.py", limit=60, PYC_EXIT_TIMEOUT="2", PYC_STALL_WARNING="0.2")
    # Where the machine is busy the communicator itself may take longer than that.
    warnings = re.findall(r"^pycollectives: (rank \d) of 3: partial_allreduce: (.*)", outcome.err, re.MULTILINE)
    assert {rank for rank, _ in warnings} == {"rank 0"}
    assert re.match(r"rank 1 did not call it within 0\.[2-9]", warnings[0][1])
