"""A rank that is stopped while it works on memory that ranks share holds up the others, but not in silence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from launcher import mpirun


@pytest.mark.parametrize(
    ("ranks", "push", "pull"), [(2, "push 1", "pull"), (3, "pull after push 1", "pull of version 2 or later")]
)
def test_who_is_behind_is_told_and_may_be_interrupted(tmp_path, ranks, push, pull):
    gate = {"GATE": str(tmp_path / "open"), "PYTHONPATH": str(Path(__file__).parents[1] / "support")}
    job = mpirun(ranks, "stopped_in_copy.py", limit=60, PYC_STALL_WARNING="0.3", **gate)
    assert job.status == 0, job
    interrupted, stall, weights = job.said(0)
    assert interrupted == "interrupted after push 1", job
    why = r"parameter server 'weights', {} \(waits for the work of rank 1 on the weights\): not complete after .* s; "
    why += r"stopped \(SIGSTOP\): rank 1\."
    assert re.fullmatch("stall: " + why.format(pull), stall), job
    assert re.search(f"rank 0 of {ranks}: " + why.format(push), job.err), job
    assert weights == "weights 3.0 3.0", job


def test_who_is_stopped_in_its_array_holds_up_a_round_that_others_have_joined(tmp_path):
    gate = {"GATE": str(tmp_path / "open"), "PYTHONPATH": str(Path(__file__).parents[1] / "support")}
    job = mpirun(2, "stopped_in_join.py", limit=60, **gate)
    assert job.status == 0, job
    interrupted, stall, last = job.said(0)
    assert interrupted == "interrupted", job
    assert re.search(r"round 0: not complete after .* s;.* stopped \(SIGSTOP\): rank 1\.", stall), job
    assert last == "round 0 11.0 11.0", job
    assert job.said(1) == ["round 0 11.0 11.0", "round 1 22.0 22.0"], job
