"""What every program begins with."""

import faulthandler
import os
import sys

# Before MPI starts, which may hang. Five seconds before the job's limit.
faulthandler.dump_traceback_later(max(1.0, float(os.environ.get("PYC_TEST_LIMIT", 60)) - 5.0))

from mpi4py import MPI  # noqa: E402

WORLD = MPI.COMM_WORLD

is_new = MPI.Comm.Get_parent() != MPI.COMM_NULL
"""Whether survivors have started this process in the place of a dead rank."""


def arguments() -> list[str]:
    """Return the arguments after the number of ranks, which must be that of the job: a wrong launcher starts one."""
    expected = int(sys.argv[1])
    if WORLD.size != expected:
        sys.exit(f"started for {expected} ranks, but MPI.COMM_WORLD has {WORLD.size}")
    return sys.argv[2:]


def say(*words: object) -> None:
    """Print one line that names the rank."""
    print(f"rank {WORLD.rank}:", *words, flush=True)
