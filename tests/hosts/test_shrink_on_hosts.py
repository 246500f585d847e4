"""After deaths on one of two hosts the survivors, on both hosts or on the other one, shrink their communicator."""

from __future__ import annotations

import pytest
from killer import WITH_FAULT_TOLERANCE, check_shrunk
from launcher import PROGRAMS
from on_hosts import IS_OPEN_MPI, WITHOUT_PUT, launched


@pytest.mark.skipif(not IS_OPEN_MPI, reason="needs Open MPI's --with-ft")
@pytest.mark.parametrize(("phase", "victims"), [("later", (3,)), ("later", (2, 0)), ("meanwhile", (2, 3))])
def test_the_survivors_go_on(tmp_path, phase, victims):
    """Another rank of a host; the leaders of both, one after the other; all ranks of a host."""
    program = [PROGRAMS / "shrinks.py", 4, phase, 0, *victims]
    job = launched("2x2", *program, options=(*WITH_FAULT_TOLERANCE, *WITHOUT_PUT), DEATH=str(tmp_path / "death"))
    check_shrunk(job, victims, 4)
