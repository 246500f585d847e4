"""Hop in which a rank dies, or is interrupted."""

import pytest
from killer import WITH_FAULT_TOLERANCE, check_told
from launcher import mpirun
from nightly import in_turn

MODES = ["standard", "backup", "staleness", "notify-ack", "skip", "serial"]


@pytest.mark.parametrize(("seed", "mode", "ranks_per_node"), in_turn([*enumerate(MODES)], ["1", "2", "all"]))
def test_the_others_are_told_who_died(tmp_path, seed, mode, ranks_per_node):
    options = {"DEATH": str(tmp_path / "d"), "PYC_RANKS_PER_NODE": ranks_per_node}
    job = mpirun(4, "killed_hop.py", mode, "2", str(seed), limit=60, options=WITH_FAULT_TOLERANCE, **options)
    check_told(job, 2)


@pytest.mark.parametrize("ranks_per_node", [1, "all"])
@pytest.mark.parametrize(("where", "then"), [("step", "[1.5]"), ("iterations", "2"), ("dequeue", "[1.]")])
def test_ctrl_c_ends_a_call_which_may_be_repeated(where, then, ranks_per_node):
    outcome = mpirun(2, "interrupted_hop.py", where, limit=40, PYC_RANKS_PER_NODE=str(ranks_per_node))
    interrupted, result = outcome.said(0)
    assert interrupted.startswith("interrupted after")
    assert float(interrupted.split()[-1]) < 5
    assert result == f"then {then}"
    assert outcome.status == 0
