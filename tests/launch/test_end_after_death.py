"""After a rank has died, the end of the others is bounded by PYC_EXIT_TIMEOUT, also where MPI_Finalize hangs."""

from __future__ import annotations

import time

from killer import OUTLIVES_S, WITH_FAULT_TOLERANCE
from launcher import mpirun


def test_a_finalize_that_does_not_return_is_ended(tmp_path):
    job = mpirun(
        *(3, "hangs_in_finalize.py"),
        limit=60,
        options=WITH_FAULT_TOLERANCE,
        DEATH=str(tmp_path / "d"),
        PYC_EXIT_TIMEOUT="2",
    )
    ended = time.monotonic()
    line = "pycollectives: a rank has died, and MPI_Finalize does not return: ending this process\n"
    assert line in job.err, job  # of the first: its exit code lets the launcher end the other
    outlived = []
    for rank in (0, 2):
        died, end = job.said(rank)  # and does not come to the line after MPI.Finalize
        assert died == "died: 1"
        outlived.append(ended - float(end.split()[1]))
    assert 2 < max(outlived) < 2 + OUTLIVES_S


def test_a_second_death_is_named_too():
    job = mpirun(5, "second_death.py", limit=60, options=WITH_FAULT_TOLERANCE)
    assert [job.said(rank) for rank in (0, 2, 4)] == [["named: 1 3"]] * 3
