"""A parameter server of which a rank dies: a server, or a worker."""

import pytest
from killer import WITH_FAULT_TOLERANCE
from launcher import mpirun

pytestmark = pytest.mark.alone


@pytest.mark.parametrize("ranks_per_node", [1, 2, "all"])
@pytest.mark.parametrize(
    ("servers", "sync", "victim", "seed"),
    [("node", "bsp", 2, 0), ("node", "ssp:2", 0, 1), ("1", "bsp", 0, 2), ("1", "ssp:1", 3, 3), ("2", "bsp", 1, 4)],
)
def test_the_others_are_told_who_died(tmp_path, servers, sync, victim, seed, ranks_per_node):
    options = {"DEATH": str(tmp_path / "d"), "PYC_RANKS_PER_NODE": str(ranks_per_node)}
    words = (servers, sync, str(victim), str(seed))
    job = mpirun(4, "killed_server.py", *words, limit=60, options=WITH_FAULT_TOLERANCE, **options)
    for rank in set(range(4)) - {victim}:
        seconds, text, *_, end = job.said(rank)
        assert float(seconds.removesuffix(" s")) < 2, job
        assert f"rank {victim} died" in text, job
        assert end == "end", job
    assert "MPI_ABORT" not in job.err, job
