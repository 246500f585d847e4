"""Training that continues after ranks die: the errors that a death causes, and the state to continue from."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mpi4py import MPI

from ..support.errors import RankFailedError
from .archive import pack, unpack

if TYPE_CHECKING:
    from ..communicator import Communicator
    from .loop import Training
    from .replica import Replica

__all__ = ["continue_from_newest", "is_death", "require_possible", "shrunk"]

DEATHS = (MPI.ERR_PROC_FAILED, MPI.ERR_PROC_FAILED_PENDING, MPI.ERR_REVOKED)
"""Classes of MPI's errors after a death. A survivor revokes a communicator on which others may wait."""

REPORT_S = 2.0
"""In which MPI reports a death, after an error that may be due to it."""


def require_possible(comm: Communicator, method: str) -> None:
    """Raise ValueError if a training cannot continue after a death."""
    if comm.transport != "mpi":
        raise ValueError("on_failure 'continue': expected a communicator on MPI; threads of one process die together")
    if comm._engine.acknowledge_failed() is None:
        raise ValueError(
            "on_failure 'continue': this MPI ends the job when a rank dies; use Open MPI 5 and start the job with "
            "mpirun --with-ft ulfm --mca async_mpi_finalize 1"
        )
    if method == "ddp":
        raise ValueError("on_failure 'continue': the process group of method 'ddp' cannot lose a rank")


def is_death(error: BaseException | None, comm: Communicator) -> bool:
    """Whether an error, or one that was being handled when it was raised, is the death of a rank of `comm`.

    If a death ends a nonblocking collective call, Open MPI may raise an error of another class before it reports the
    death: waits up to `REPORT_S` for the report.
    """
    while error is not None:
        if isinstance(error, RankFailedError) and error.ranks:
            return True
        if isinstance(error, MPI.Exception):
            return error.Get_error_class() in DEATHS or _is_reported(comm)
        error = error.__context__
    return False


def _is_reported(comm: Communicator) -> bool:
    """Whether MPI reports a death soon."""
    deadline = time.monotonic() + REPORT_S
    while not comm._engine.acknowledge_failed():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def shrunk(comm: Communicator) -> Communicator:
    """Return a communicator of the survivors; collective over them.

    Revokes `comm.mpi_comm`, so that no survivor keeps waiting in a collective call of MPI.
    """
    comm.mpi_comm.Revoke()
    return comm.shrink()


def continue_from_newest(comm: MPI.Comm, training: Training, replica: Replica) -> None:
    """Give all ranks the state of the rank that is furthest ahead; collective.

    They receive its weights and the states of its model and optimizer, bit for bit. The step number stays each rank's
    own, except in methods whose ranks all take the same step, where a rank may lack the last round.
    """
    places = comm.allgather((training.settled, training.number))
    furthest = max(places)
    donor = places.index(furthest)
    state = comm.bcast(pack(replica.model, optimizer=replica.optimizer) if comm.rank == donor else None, donor)
    if comm.rank != donor:
        unpack(state, replica.model, optimizer=replica.optimizer)
    training.settled = furthest[0]
    if replica.synchronizer.in_step:
        training.number = furthest[1]
