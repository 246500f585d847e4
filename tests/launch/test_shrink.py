"""After a death the survivors shrink their communicator, and every collective works on the new one."""

from __future__ import annotations

import re

import pytest
from killer import WITH_FAULT_TOLERANCE, check_shrunk
from launcher import launcher, mpirun
from nightly import nightly_unless

pytestmark = pytest.mark.skipif(len(launcher()) == 1, reason="needs Open MPI's --with-ft")

RANKS = 5


@pytest.mark.parametrize("seed", nightly_unless(lambda seed: seed == 0, range(4)))
@pytest.mark.parametrize("ranks_per_node", ["all", "1", "2"])
@pytest.mark.parametrize(("phase", "victims"), [("later", (2, 0, 3)), ("meanwhile", (4, 0)), ("late", (1,))])
def test_the_survivors_go_on(tmp_path, phase, victims, ranks_per_node, seed):
    options = {"DEATH": str(tmp_path / "d"), "PYC_RANKS_PER_NODE": ranks_per_node}
    job = mpirun(RANKS, "shrinks.py", phase, seed, *victims, limit=90, options=WITH_FAULT_TOLERANCE, **options)
    if phase == "late":
        (stalled,) = [line for line in job.said(4) if line.startswith("stalled")]
        says = r"not complete after [\d.]+ s; have not called it: ranks? 0\b.*\. Call it again"
        assert re.search(says, stalled)
    check_shrunk(job, victims, RANKS)


def test_one_rank_is_left(tmp_path):
    job = mpirun(3, "shrinks.py", "later", 1, 0, 2, limit=90, options=WITH_FAULT_TOLERANCE, DEATH=str(tmp_path / "d"))
    check_shrunk(job, (0, 2), ranks=3)


@pytest.mark.parametrize("parent", ["world", "duplicate"])
def test_after_a_communicator_that_mpi_could_not_make(tmp_path, parent):
    """Open MPI would wait in MPI_Comm_shrink forever for its turn."""
    options = {"options": WITH_FAULT_TOLERANCE, "DEATH": str(tmp_path / "d")}
    job = mpirun(4, "shrinks_after_creation.py", parent, limit=40, **options)
    assert any("no duplicate:" in line for rank in range(3) for line in job.said(rank))
    assert [job.said(rank)[-1] for rank in range(3)] == ["total: 3"] * 3


def test_a_creation_on_mpi_comm_world_that_failed_is_reported(tmp_path):
    """No communicator of fewer ranks can be made after it."""
    options = {"options": WITH_FAULT_TOLERANCE, "DEATH": str(tmp_path / "d")}
    job = mpirun(4, "shrinks_after_creation.py", "outside", limit=60, **options)
    says = [job.said(rank)[-1] for rank in (1, 2)]
    assert any("Make communicators from a duplicate of MPI_COMM_WORLD" in line for line in says)
    assert all(line.startswith("error: ") for line in says)
