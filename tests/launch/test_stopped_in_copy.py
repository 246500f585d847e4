"""A rank that is stopped while it works on weights that ranks share holds up the others, but not in silence."""

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
