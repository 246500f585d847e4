"""A member of a group that dies leaves no partial sum in the values of the others."""

from __future__ import annotations

import pytest
from killer import WITH_FAULT_TOLERANCE
from launcher import launcher, mpirun
from nightly import nightly_unless

pytestmark = pytest.mark.skipif(len(launcher()) == 1, reason="needs Open MPI's --with-ft")


@pytest.mark.parametrize("moment", nightly_unless(lambda moment: moment < 2, range(8)))
@pytest.mark.parametrize("ranks_per_node", ["1", "2", "all"])
def test_the_values_of_survivors_are_whole(tmp_path, ranks_per_node, moment):
    options = {"DEATH": str(tmp_path / "d"), "PYC_RANKS_PER_NODE": ranks_per_node}
    seconds = 0.3 + 0.005 * moment
    job = mpirun(4, "averages_whole.py", seconds, limit=90, options=WITH_FAULT_TOLERANCE, **options)
    assert [job.said(rank) for rank in range(3)] == [["whole: True"]] * 3
