"""Hop in which a rank dies."""

import pytest
from killer import WITH_FAULT_TOLERANCE
from launcher import mpirun

pytestmark = pytest.mark.alone


@pytest.mark.parametrize("ranks_per_node", [1, 2, "all"])
@pytest.mark.parametrize(("mode", "seed"), [("standard", 0), ("standard", 1), ("backup", 2), ("staleness", 3)])
def test_the_others_are_told_who_died(tmp_path, mode, seed, ranks_per_node):
    options = {"DEATH": str(tmp_path / "d"), "PYC_RANKS_PER_NODE": str(ranks_per_node)}
    job = mpirun(4, "killed_hop.py", mode, "2", str(seed), limit=60, options=WITH_FAULT_TOLERANCE, **options)
    for rank in (0, 1, 3):
        seconds, text, *_, end = job.said(rank)
        assert float(seconds.removesuffix(" s")) < 2, job
        assert "rank 2 died" in text, job
        assert end == "end", job
    assert "MPI_ABORT" not in job.err, job
