"""Averages with neighbors in programs whose ranks are killed or interrupted."""

from __future__ import annotations

import pytest
from killer import WITH_FAULT_TOLERANCE, check_told
from launcher import mpirun
from nightly import in_turn

CALLS = [("d-psgd", 0), ("d-psgd", 1), ("push-sum", 2), ("overlap", 3)]


@pytest.mark.parametrize(("call", "seed", "ranks_per_node"), in_turn(CALLS, ["1", "2", "all"]))
def test_the_others_are_told_who_died(tmp_path, call, seed, ranks_per_node):
    options = {"DEATH": str(tmp_path / "d"), "PYC_RANKS_PER_NODE": ranks_per_node}
    job = mpirun(4, "killed_neighbor.py", call, "2", str(seed), limit=60, options=WITH_FAULT_TOLERANCE, **options)
    check_told(job, 2)


@pytest.mark.parametrize("ranks_per_node", [1, "all"])
@pytest.mark.parametrize("where", ["wait", "final"])
def test_ctrl_c_ends_a_wait_and_not_the_step(where, ranks_per_node):
    outcome = mpirun(2, "interrupted_neighbor.py", where, limit=40, PYC_RANKS_PER_NODE=str(ranks_per_node))
    interrupted, result = outcome.said(0)
    assert interrupted.startswith("interrupted after")
    assert float(interrupted.split()[-1]) < 5
    assert result == "[0.5]"
    assert outcome.status == 0
