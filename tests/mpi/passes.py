"""Runs tests/mpi several times in one job, each time with the ranks in another shape: what tests/run.sh starts.

    mpirun -n 4 python tests/mpi/passes.py SECONDS SHAPE:RANKS_PER_NODE[:training]... -- [PYTEST OPTION...]

Starting a rank and importing what it needs takes longer than some of the passes. PYC_RANKS_PER_NODE is read when a
communicator is made, so it can change between them. A pass that takes more than SECONDS ends the job by SIGALRM, also
while Python is held up in a call of MPI.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from _pytest.config import ExitCode

HERE = Path(__file__).parent
TRAINING = ("test_ddp.py", "test_torch*.py", "test_train_*.py")
"""What is built on the library, and tested in passes with `training` only."""
OWN_NODES = (
    "test_device_allreduce.py",
    "test_device_contributions.py",
    "test_device_groups.py",
    "test_device_named_groups.py",
)
"""What makes communicators of its own shapes: tested in the first pass only, at 3 ranks, or nightly at any number."""
OWN_NODES_RANKS = "3"
"""The fewest that make two nodes of which one has two ranks."""
ONCE = (
    "test_checking.py",
    "test_first_program.py",
    "test_large.py",
    "test_mismatch.py",
    "test_requests.py",
    "test_results.py",
)
"""What hardly depends on the shape: tested in the first pass only, unless NIGHTLY is set."""


def main(limit: int, passes: list[str], options: list[str]) -> int:
    """Return the status of the first pass that failed; NO_TESTS_COLLECTED if no pass has found a test."""
    ranks = os.environ["PYC_TEST_RANKS"]
    found = False
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    for number, one in enumerate(passes):
        shape, ranks_per_node, *training = one.split(":")
        title = f"### MPI, {ranks} ranks, {shape}"
        print(f"\n{title}", flush=True)
        os.environ["PYC_RANKS_PER_NODE"] = ranks_per_node
        nightly = bool(os.environ.get("NIGHTLY"))
        others = [*(() if training else TRAINING)]
        others += OWN_NODES if number > 0 or not (nightly or ranks == OWN_NODES_RANKS) else ()
        others += ONCE if number > 0 and not nightly else ()
        left_out = [f"--ignore={path}" for name in others for path in HERE.glob(name)]
        signal.alarm(limit)
        status = pytest.main(["--with-mpi", "-p", "no:cacheprovider", "--color=no", *left_out, *options, str(HERE)])
        signal.alarm(0)
        nothing_selected = status == ExitCode.NO_TESTS_COLLECTED and bool(options)
        if status != ExitCode.OK and not nothing_selected:
            print(f"{title}: failed with status {int(status)}", flush=True)
            return int(status)
        found |= status == ExitCode.OK
    return int(ExitCode.OK if found else ExitCode.NO_TESTS_COLLECTED)


if __name__ == "__main__":
    separator = sys.argv.index("--")
    sys.exit(main(int(sys.argv[1]), sys.argv[2:separator], sys.argv[separator + 1 :]))
