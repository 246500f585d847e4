"""Runs a benchmark's command on every rank of MPI.COMM_WORLD: one voice, and one end for all ranks."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from typing import TYPE_CHECKING

import click
from mpi4py import MPI

from .launcher import launcher_mismatch

if TYPE_CHECKING:
    from collections.abc import Sequence


class RunError(Exception):
    """The run cannot go on; every rank raises it, with the same text."""


def launch(command: click.Command, arguments: Sequence[str] | None = None) -> None:
    """Only rank 0 prints; wrong use ends all ranks with code 2; an unexpected error on one rank aborts the others."""
    comm = MPI.COMM_WORLD
    mismatch = launcher_mismatch(os.environ, comm.size)
    if mismatch is not None:
        text, rank = mismatch
        if rank == 0:
            print(f"error: {text}", file=sys.stderr)
        sys.exit(2)
    with contextlib.ExitStack() as stack:
        if comm.rank != 0:
            nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
            stack.enter_context(contextlib.redirect_stdout(nowhere))
        try:
            command.main(args=arguments, standalone_mode=False)
        except click.ClickException as error:  # arguments are the same everywhere, so every rank comes here
            if comm.rank == 0:
                error.show()
            sys.exit(2)
        except RunError as error:
            if comm.rank == 0:
                print(f"error: {error}", file=sys.stderr)
            sys.exit(1)
        except Exception:
            traceback.print_exc()
            sys.stderr.flush()
            comm.Abort(1)
