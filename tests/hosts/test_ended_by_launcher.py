"""A rank that dies on another host, without fault tolerance: the launcher or the MPI ends the job, on all hosts."""

from __future__ import annotations

import pytest
from launcher import PROGRAMS
from on_hosts import launched


@pytest.mark.parametrize("victim", [2, 3])
def test_no_rank_is_left_waiting(tmp_path, victim):
    """The leader of the other host, or another rank there."""
    job = launched("2x2", PROGRAMS / "killed.py", 4, "working", victim, 1, limit=60, DEATH=str(tmp_path / "death"))
    assert job.status != 0, job
    assert job.seconds < 20, job
    assert "wrong result" not in job.out, job
