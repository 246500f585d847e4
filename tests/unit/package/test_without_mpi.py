"""Before MPI_Init and after MPI_Finalize a communicator cannot be made, and the error says so: MPI ends the process."""

import subprocess
import sys

import pytest

CALLS = {
    "Communicator": "pc.Communicator(MPI.COMM_SELF)",
    "Allreduce_init": "pc.Allreduce_init(np.ones(1), np.ones(1), comm=MPI.COMM_SELF)",
    "mpi4py's default": "pc.Allreduce_init(np.ones(1), np.ones(1))",
}
BEFORE = "import mpi4py; mpi4py.rc.initialize = False"
AFTER = "from mpi4py import MPI; MPI.Finalize()"


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(("begin", "says"), [(BEFORE, "MPI is not initialized"), (AFTER, "MPI is finalized")])
def test_it_is_an_error_that_says_so(begin, says, call):
    program = f"""
{begin}
import numpy as np
from mpi4py import MPI
import pycollectives as pc
try:
    {CALLS[call]}
except RuntimeError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(says), done.stdout
