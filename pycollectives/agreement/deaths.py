"""MPI errors caused by a rank's death."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..support.deadline import Deadline
from ..support.errors import RankFailedError
from ..support.launchers import is_fault_tolerant
from .consistency import describe_ranks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeGuard

    from mpi4py import MPI

REPORT_S = 2.0
"""Time within which MPI reports a death after an error that the death has caused."""


def follows_death(error: BaseException) -> TypeGuard[MPI.Exception]:
    """Return whether an MPI error is due to a death. A rank that notices a death revokes the new communicator."""
    from ..support.native import MPI

    deaths = (MPI.ERR_PROC_FAILED, MPI.ERR_PROC_FAILED_PENDING, MPI.ERR_REVOKED)
    return isinstance(error, MPI.Exception) and error.Get_error_class() in deaths


def _is_reported_soon(comm: MPI.Comm) -> bool:
    """Return whether MPI reports a death within `REPORT_S`; Open MPI may raise other errors first."""
    if not is_fault_tolerant():
        return False
    deadline = Deadline(REPORT_S)
    while not _failed(comm):
        if deadline.passed:
            return False
        time.sleep(1e-3)
    return True


@contextmanager
def naming_failed_ranks(comm: MPI.Comm) -> Iterator[None]:
    """If a rank dies while a collective is created, convert MPI's error to RankFailedError, naming the dead ranks."""
    from ..support.native import MPI

    try:
        yield
    except MPI.Exception as error:
        if not follows_death(error) and not _is_reported_soon(comm):
            raise
        raise _rank_failed(comm, str(error)) from error
    except RankFailedError as error:
        raise (error if error.ranks else _rank_failed(comm, str(error))) from None


def _failed(comm: MPI.Comm) -> list[int]:
    """Return the ranks of a communicator that MPI reports as dead. Without fault tolerance, it reports none."""
    from ..support.native import MPI

    try:
        return sorted(comm.Get_failed().Translate_ranks(None, comm.Get_group()))
    except (MPI.Exception, NotImplementedError):
        return []


def _rank_failed(comm: MPI.Comm, text: str) -> RankFailedError:
    ranks = _failed(comm)
    who = f"{describe_ranks(ranks)} died ({text})" if ranks else text
    return RankFailedError(f"Communicator: {who}", ranks)
