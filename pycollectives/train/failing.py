"""End a command on all ranks if a rank fails: print the error, and let no rank wait indefinitely."""

from __future__ import annotations

import io
import sys
import time
import traceback
from typing import TYPE_CHECKING

import click

from ..support.errors import MismatchError, RankFailedError, StallError, TransportError
from ..support.extras import how_to_install

if TYPE_CHECKING:
    from mpi4py import MPI

EXTRAS = {"torch": "torch", "sklearn": "train"}
"""The extra of this package that installs a module."""

READABLE = (ImportError, MemoryError, OSError, ValueError, MismatchError, RankFailedError, StallError, TransportError)
"""Errors that are not defects of this package: one line explains them better than a traceback."""

PATIENCE_S = 3.0
"""How long a failed rank waits for the others to fail as well, before it ends the job."""


def explain(failures: MPI.Intracomm, error: BaseException) -> None:
    """Print why this rank cannot continue. If other ranks may wait for it indefinitely, end the job.

    An error that all ranks raise is printed once. `failures` is a communicator of all ranks with no other use.
    """
    text = _text_of(error)
    from mpi4py import MPI

    try:
        all_failed = failures.Ibarrier()
        deadline = time.monotonic() + PATIENCE_S
        while not all_failed.Test():
            if time.monotonic() > deadline:
                _end(failures, text)
            time.sleep(0.01)
        texts = failures.gather(text)
    except MPI.Exception:  # a rank has died
        _end(failures, text)
    for one in dict.fromkeys(texts or ()):
        click.echo(one, err=True)


def _end(failures: MPI.Intracomm, text: str) -> None:
    click.echo(f"Rank {failures.rank}: {text}", err=True)
    sys.stderr.flush()
    failures.Abort(1)


def _text_of(error: BaseException) -> str:
    if isinstance(error, click.UsageError):
        usage = io.StringIO()
        error.show(usage)
        return usage.getvalue().rstrip()
    if isinstance(error, KeyboardInterrupt):
        return "Error: interrupted; only SIGUSR1 or SIGTERM ends training with a checkpoint"
    if not isinstance(error, READABLE):
        return "".join(traceback.format_exception(error))
    extra = EXTRAS.get(getattr(error, "name", None) or "")
    return f"Error: {error}" + (f": {how_to_install(extra)}" if extra else "")
