"""Jobs under a launcher, with a time limit that ends all of their processes."""

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

GRACE = 10.0  # seconds in which a launcher that is asked to end ends its ranks


@dataclass(frozen=True)
class Outcome:
    """`failure` is empty where the job ended well, and else says in a line what happened."""

    failure: str


def run_job(command: Sequence[str], variables: Mapping[str, str], folder: Path, limit: float) -> Outcome:
    """Runs it in `folder`; `limit` in seconds."""
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
    """The launcher ends its ranks; what it leaves of its own session is killed."""
    if job.poll() is None:
        job.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            job.wait(GRACE)
    with contextlib.suppress(ProcessLookupError):  # nothing is left
        os.killpg(job.pid, signal.SIGKILL)
    job.wait()


def _reason(printed: str) -> str:
    """The line that says what was wrong, as far as can be told."""
    lines = [line.strip() for line in printed.splitlines() if line.strip(" -=")]
    errors = [line for line in lines if "rror" in line]
    return (errors or lines or ["it printed nothing"])[0][:200]
