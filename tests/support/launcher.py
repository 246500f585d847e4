"""Start programs of several ranks from a test, with the MPI launcher that belongs to this Python.

Open MPI and MPICH take different options; both must run more ranks than there are cores. Every job has its own time
limit outside Python, because a rank that hangs in MPI would not end otherwise.
"""

from __future__ import annotations

import functools
import os
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAMS = Path(__file__).parents[1] / "launch" / "programs"

LAUNCHED = ("OMPI_", "PMIX_", "PRTE_", "PMI_", "MPI_LOCAL", "HYDRA_", "PYC_")
"""Prefixes of the variables that a launcher, or our own settings, leave in the environment."""


@dataclass(frozen=True)
class Outcome:
    """The end of a job. Status 124 or 137 at the outer time limit: it hung. 137 before that: a rank was killed."""

    status: int
    out: str = field(repr=False)
    err: str = field(repr=False)
    seconds: float
    limit: float

    def __str__(self) -> str:
        return f"status {self.status} after {self.seconds:.1f} s\n--- stdout\n{self.out}\n--- stderr\n{self.err}"

    @property
    def hung(self) -> bool:
        return self.status in (124, 137) and self.seconds >= self.limit

    def said(self, rank: int) -> list[str]:
        """Return the output of a rank: the programs begin its lines with "rank R: "."""
        start = f"rank {rank}: "
        return [line.removeprefix(start) for line in self.out.splitlines() if line.startswith(start)]


@functools.cache
def launcher() -> tuple[str, ...]:
    """Return the command that starts ranks, without their number: the one next to this Python, or on PATH."""
    neighbor = Path(sys.executable).parent / "mpirun"
    mpirun = str(neighbor) if neighbor.exists() else shutil.which("mpirun")
    assert mpirun, "no mpirun next to this Python, and none on PATH"
    version = subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=False).stdout
    return (mpirun, "--oversubscribe", "--bind-to", "none") if "Open MPI" in version else (mpirun,)


def environment(**changed: str) -> dict[str, str]:
    """Return the environment of a job: this one's, without the variables of a launcher around this test."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHED)}
    for_open_mpi = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_btl": "^ofi",  # see tests/conftest.py
        "PYC_EXIT_TIMEOUT": "15",  # after a death MPI_Finalize may not return; less than the limit of any job
    }
    return {**clean, **for_open_mpi, **changed}


def run(command: list[str], *, limit: float = 60, env: dict[str, str] | None = None) -> Outcome:
    """Run a command with an outer time limit in seconds. pytest shows the output if the test fails."""
    begin = time.monotonic()
    job = subprocess.run(
        ["timeout", "--kill-after=5", str(limit), *command],
        capture_output=True,
        text=True,
        env=environment() if env is None else env,
        check=False,
    )
    outcome = Outcome(job.returncode, job.stdout, job.stderr, time.monotonic() - begin, limit)
    if "PYTEST_CURRENT_TEST" in os.environ:
        print(shlex.join(command), outcome)
    return outcome


def mpirun(
    ranks: int, program: str, *arguments: object, limit: float = 60, options: Sequence[str] = (), **env: str
) -> Outcome:
    """Run a program of tests/launch/programs on `ranks` ranks; its first argument is their number. Fail if it hangs.

    `options` are the launcher's. Five seconds before the limit each rank prints where it is.
    """
    env = {"PYC_TEST_LIMIT": str(limit), **env}
    command = [*launcher(), *options, "-n", str(ranks), sys.executable, str(PROGRAMS / program), str(ranks)]
    outcome = run([*command, *map(str, arguments)], limit=limit, env=environment(**env))
    assert not outcome.hung, f"{program} hung: {outcome}"
    return outcome
