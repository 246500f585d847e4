"""Submits jobs to the cluster, and reads what they leave."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import subprocess

    from controller import Cluster

PROGRAMS = Path(__file__).parent / "programs"


class Jobs:
    """Submits jobs in a folder of the test, and reads what they leave in its folder `runs`."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.environment = {
            **cluster.environment(),
            "PATH": f"{PROGRAMS}:{os.environ['PATH']}",  # ibrun
            "OMPI_MCA_mpi_yield_when_idle": "1",  # more ranks than cores, of which only mpirun knows
            "OMPI_MCA_btl": "^ofi",  # see tests/conftest.py
            "SLURM_PMIX_FENCE": "ring",  # see slurm/profiles/generic.toml; the others are for Cray MPICH
            # Some clusters have no modules, so a stand-in that every bash inherits.
            "BASH_FUNC_module%%": '() { export LOADEDMODULES="$2"; }',
        }

    def command(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Run `python -m pycollectives slurm ...`."""
        command = [sys.executable, "-m", "pycollectives", "slurm", *map(str, arguments)]
        return self.cluster.run(*command, cwd=self.folder, env=self.environment)

    def submit(self, *arguments: object) -> str:
        """Submit a job and return its id."""
        done = self.command("submit", *arguments)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr + self.logs()
        return done.stdout.strip()

    def log(self, job: str) -> str:
        path = self.folder / "runs" / f"{job}.log"
        return path.read_text() if path.exists() else ""

    def logs(self) -> str:
        return "".join(path.read_text() for path in sorted(self.folder.glob("**/runs/*.log")))

    def result(self, job: str, name: str = "result.json") -> dict[str, Any]:
        path = self.folder / "runs" / job / name
        assert path.exists(), self.log(job)
        return json.loads(path.read_text())

    def wait_for_log(self, job: str, text: str) -> None:
        self.cluster.wait(lambda: text in self.log(job), f"{text!r} in the log of {job}")

    def wait_for_end(self, *jobs: str) -> None:
        """Wait until none of the jobs is queued or runs."""
        known = ["squeue", "--noheader", "--states=all", "--format=%T", f"--jobs={','.join(jobs)}"]
        ended = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "PREEMPTED"}
        self.cluster.wait(lambda: set(self.cluster.ask(*known).split()) <= ended, f"the end of {jobs}")

    def stop_once_counting(self, job: str) -> None:
        """Do what SLURM does before the time limit."""
        self.wait_for_log(job, "counting from 0")
        self.cluster.ask("scancel", "--batch", "--signal=USR1", job)
