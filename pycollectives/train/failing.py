"""How a command that runs on all ranks ends if some fail: what is wrong is said, and nobody is waited for for ever."""

from __future__ import annotations

import sys
import time
import traceback
from typing import TYPE_CHECKING

import click

from ..errors import MismatchError, RankFailedError, StallError, TransportError

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["explain"]

EXTRAS = {"torch": "torch", "sklearn": "train"}
"""Which extra of this package a module comes with."""

READABLE = (ImportError, OSError, ValueError, MismatchError, RankFailedError, StallError, TransportError)
"""What goes wrong without a defect of this package: a line says it, a traceback would hide it."""

PATIENCE_S = 3.0
"""For the other ranks to fail as well, before a rank that has failed ends the job."""


def explain(ranks: MPI.Intracomm, error: BaseException) -> int:
    """Say why this rank cannot go on, and return the exit code. If others can, they may wait for it: it ends the job.

    What all ranks have found out is said once. `ranks` is a communicator of all, with no other use.
    """
    if isinstance(error, READABLE):
        extra = EXTRAS.get(getattr(error, "name", None) or "")
        text = f"Error: {error}" + (f": pip install 'pycollectives[{extra}]'" if extra else "")
    else:
        text = "".join(traceback.format_exception(error))
    all_failed = ranks.Ibarrier()
    deadline = time.monotonic() + PATIENCE_S
    while not all_failed.Test():
        if time.monotonic() > deadline:
            click.echo(f"Rank {ranks.rank}: {text}", err=True)
            sys.stderr.flush()
            ranks.Abort(1)
        time.sleep(0.01)
    texts = ranks.gather(text)
    for one in dict.fromkeys(texts or ()):
        click.echo(one, err=True)
    return 1
