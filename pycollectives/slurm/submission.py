"""Submit a batch script with sbatch."""

from __future__ import annotations

import re
import subprocess
import tempfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class SubmissionError(RuntimeError):
    """The job was not submitted; the message is sbatch's error, in one line."""


def submit(script: str, options: Sequence[str] = ()) -> tuple[int, str]:
    """Submit a job; return the status of sbatch, or of the job with `--wait`, and sbatch's text on stderr.

    sbatch prints only the job's id on stdout. `options` are sbatch's: with `--wait` the call returns when the job has
    ended, and with `--test-only` it submits nothing. SubmissionError if sbatch is missing or refuses the job.
    """
    with tempfile.TemporaryFile("w+") as source:
        source.write(script)
        source.flush()
        source.seek(0)
        try:  # stdout is inherited, so that with --wait the id appears before the job has ended
            done = subprocess.run(
                ["sbatch", "--parsable", *options], stdin=source, stderr=subprocess.PIPE, text=True, check=False
            )
        except FileNotFoundError:
            raise SubmissionError("sbatch is not on PATH: submit from a login node of the cluster") from None
    if done.returncode and (complaint := complaint_of(done.stderr)):
        raise SubmissionError(f"sbatch: {complaint}")
    return done.returncode, done.stderr.strip()


def complaint_of(text: str) -> str:
    """Return the error from sbatch's output, without repeated words.

    >>> complaint_of("sbatch: error: Batch job submission failed: Invalid account or partition specified")
    'Invalid account or partition specified'
    """
    marks = r"^(?:sbatch: )?(?:error: |fatal: |allocation failure: )+(?:Batch job submission failed: )?"
    complaints = [re.sub(marks, "", line.strip()) for line in text.splitlines() if re.match(marks, line)]
    return "; ".join(dict.fromkeys(complaints))
