"""The end of the program: closes open communicators, and serves the other ranks until they have closed too."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .communicator import Communicator

open_communicators: dict[Communicator, None] = {}
"""The open communicators of this process, in the order of creation."""


def _close_left_open(communicator: Communicator) -> None:
    names = ", ".join(repr(collective.name) for collective in communicator._context.open) or "none"
    discarded = communicator.abort()
    logging.getLogger("pycollectives").warning(
        "pycollectives: rank %d: the program ends with a communicator that is not closed (open collectives: %s; "
        "contributions discarded: %d); use `with` or call close(). This rank serves the others until they have closed "
        "it too (PYC_EXIT_TIMEOUT)",
        *(communicator.rank, names, discarded),
    )


def _close_all() -> None:
    """Close open communicators with a warning each, and serve the other ranks until all have closed.

    This must run while the engine's thread may still call MPI. mpi4py finalizes MPI later, after the interpreter has
    ended, and MPICH 5 stops taking locks when MPI_Finalize begins.
    """
    for communicator in tuple(open_communicators):
        try:
            _close_left_open(communicator)
        except Exception:
            traceback.print_exc()  # a defect; close the other communicators anyway
    if (native := sys.modules.get(f"{__package__}.support.native")) is not None:
        native.core.close_all()


atexit.register(_close_all)
os.register_at_fork(after_in_child=open_communicators.clear)  # they belong to the parent
