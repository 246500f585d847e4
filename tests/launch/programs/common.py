"""What every program begins with."""

import sys

from mpi4py import MPI

WORLD = MPI.COMM_WORLD


def arguments() -> list[str]:
    """Return the arguments after the number of ranks, which must be that of the job: a wrong launcher starts one."""
    expected = int(sys.argv[1])
    if WORLD.size != expected:
        sys.exit(f"started for {expected} ranks, but MPI.COMM_WORLD has {WORLD.size}")
    return sys.argv[2:]


def say(*words: object) -> None:
    """Print one line that names the rank."""
    print(f"rank {WORLD.rank}:", *words, flush=True)
