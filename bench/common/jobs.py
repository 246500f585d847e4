"""Run jobs under a launcher, with a time limit that ends all of their processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

GRACE = 10.0  # seconds for the launcher to end its ranks when asked to terminate


@dataclass(frozen=True)
class Outcome:
    """The end of a job: `failure` is one line of text, empty if the job succeeded."""

    failure: str


def run_job(command: Sequence[str], variables: Mapping[str, str], folder: Path, limit: float) -> Outcome:
    """Run a job in `folder`, with a `limit` in seconds."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as printed:
        try:
            job = subprocess.Popen(
                list(command),
                cwd=folder,
                env=dict(variables),
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            return Outcome(f"{command[0]}: {error.strerror}")
        try:
            code = job.wait(limit)
        except subprocess.TimeoutExpired:
            return Outcome(f"did not end within {limit:g} s")
        finally:
            _end(job)
        printed.seek(0)
        return Outcome("" if code == 0 else f"ended with code {code}: {_reason(printed.read())}")


def _end(job: subprocess.Popen[bytes]) -> None:
    """Ask the launcher to end its ranks, then kill the remaining processes of its session."""
    if job.poll() is None:
        job.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            job.wait(GRACE)
    with contextlib.suppress(ProcessLookupError):  # no process is left
        os.killpg(job.pid, signal.SIGKILL)
    job.wait()


def _reason(printed: str) -> str:
    """Return the line of the output that most likely names the error."""
    lines = [line.strip() for line in printed.splitlines() if line.strip(" -=")]
    errors = [line for line in lines if "rror" in line]
    return (errors or lines or ["it printed nothing"])[0][:200]
