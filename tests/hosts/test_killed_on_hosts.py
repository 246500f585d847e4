"""A rank that dies on another host is named to all: no process there can be looked at from here."""

from __future__ import annotations

import pytest
from killer import WITH_FAULT_TOLERANCE
from launcher import PROGRAMS
from on_hosts import IS_OPEN_MPI, WITHOUT_PUT, launched


@pytest.mark.skipif(not IS_OPEN_MPI, reason="needs Open MPI's --with-ft")
@pytest.mark.parametrize(("phase", "victim"), [("working", 2), ("solo", 3), ("asleep", 0)])
def test_all_others_are_told_who_died(tmp_path, phase, victim):
    """A leader of a node, another rank of a node, and rank 0."""
    program = [PROGRAMS / "killed.py", 4, phase, victim, 1]
    job = launched("2x2", *program, options=(*WITH_FAULT_TOLERANCE, *WITHOUT_PUT), DEATH=str(tmp_path / "death"))
    for rank in {0, 1, 2, 3} - {victim}:
        assert len(job.said(rank)) >= 3, job
        seconds, text, *_, end = job.said(rank)
        assert float(seconds.removesuffix(" s")) < 10, job
        assert f"rank {victim} died" in text, job
        assert end == "end", job
    assert job.said(victim) == [], job
