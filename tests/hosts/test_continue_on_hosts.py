"""After deaths on one or both of two hosts, the survivors continue in the same collective."""

from __future__ import annotations

import pytest
from killer import WITH_FAULT_TOLERANCE
from launcher import PROGRAMS
from on_hosts import IS_OPEN_MPI, WITHOUT_PUT, launched


@pytest.mark.nightly
@pytest.mark.skipif(not IS_OPEN_MPI, reason="needs Open MPI's --with-ft")
@pytest.mark.parametrize(
    ("program", "victims"),
    [
        ("continues.py majority sum 0.3 40 1", (3, 0)),
        ("moments.py allreduce step 0 40 2", (2, 3)),
        ("moments.py server step 0 40 3", (0, 1)),
    ],
)
def test_the_survivors_continue(tmp_path, program, victims):
    """The last rank, and then the first; all ranks of a host at once."""
    program, *arguments = program.split()
    options = (*WITH_FAULT_TOLERANCE, *WITHOUT_PUT)
    command = [PROGRAMS / program, 4, *arguments, *victims]
    job = launched("2x2", *command, options=options, DEATH=str(tmp_path / "death"), PYTHONHASHSEED="0")
    survivors = sorted({0, 1, 2, 3} - {*victims})
    for rank in survivors:
        assert job.said(rank)[-1] == "end", job
        assert f"members: {' '.join(map(str, survivors))}" in job.said(rank), job
    assert "Traceback" not in job.err, job
