"""Training that continues after ranks die: the errors that a death causes, and the state to continue from."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
from mpi4py import MPI

from ..agreement.deaths import follows_death
from ..agreement.shrinking import REPORT_S
from ..support.errors import RankFailedError, StallError, TransportError
from ..support.launchers import FAULT_TOLERANT, is_fault_tolerant
from .archive import pack, unpack
from .reductions import broadcast, gathered

if TYPE_CHECKING:
    from ..communicator import Communicator
    from .loop import Training
    from .replica import Replica

CAUSED = (MPI.Exception, RankFailedError, StallError, TransportError)
"""Errors that a death may cause before MPI reports it: a survivor that has seen it leaves the others."""

SOON_S = 0.5
"""Seconds in which MPI reports a death after another error, such as one in the data of a collective call."""


def require_possible(comm: Communicator) -> None:
    """Raise ValueError if a training job cannot continue after a death; local."""
    if comm.transport != "mpi":
        raise ValueError("on_failure 'continue': expected a communicator on MPI; threads of one process die together")
    if comm._engine.acknowledge_failed() is None or not is_fault_tolerant():
        raise ValueError(
            "on_failure 'continue': this job ends when a rank dies; start it with Open MPI 5, with "
            f"mpirun --with-ft ulfm --mca async_mpi_finalize 1 (which sets {FAULT_TOLERANT}=1)"
        )


def is_death(error: BaseException | None, comm: Communicator, outer: BaseException | None = None) -> bool:
    """Return True if a death in `comm` caused `error`, or an earlier error that was being handled at the time.

    Waits up to `REPORT_S` seconds for MPI's report if the error does not show a death. `outer` is the error that the
    program was handling before.
    """
    chain = []
    while error is not None and error is not outer:
        chain.append(error)
        error = error.__context__
    patience = REPORT_S if any(isinstance(one, CAUSED) for one in chain) else SOON_S
    return any(_shows_death(one) for one in chain) or _is_reported(comm, patience)


def _shows_death(error: BaseException) -> bool:
    return follows_death(error) or (isinstance(error, RankFailedError) and bool(error.ranks))


def _is_reported(comm: Communicator, patience: float) -> bool:
    """Whether MPI reports a death within `patience` seconds."""
    deadline = time.monotonic() + patience
    while not (dead := comm._engine.acknowledge_failed()):
        if dead is None or time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def shrunk(comm: Communicator, *, limit: float | None = None) -> Communicator:
    """Return a communicator of the survivors; collective over them.

    Revokes `comm.mpi_comm`, so that no survivor keeps waiting in a collective MPI call. Waits for survivors that still
    compute, however long; with a `limit` in seconds it raises StallError instead.
    """
    comm.mpi_comm.Revoke()
    while True:
        try:
            return comm.shrink(timeout=limit)
        except StallError:
            if limit is not None:
                raise


def continue_from_newest(comm: MPI.Comm, training: Training, replica: Replica) -> None:
    """Give all ranks the state of the rank that is furthest ahead; collective.

    The other ranks receive that rank's weights and the states of its model and optimizer, bit for bit. In methods whose
    ranks all take the same step they also adopt its step number, because they may have missed the last round. In other
    methods, each rank keeps its own step number.
    """
    places = gathered(comm, (training.settled, training.taken, training.number))
    furthest = max(places)
    donor = places.index(furthest)
    state = pack(replica.model, optimizer=replica.optimizer)
    if comm.rank != donor:  # its own state stays whole until all has arrived: a death may interrupt this
        state = {name: np.empty_like(array) for name, array in state.items()}
    for name in sorted(state):
        broadcast(comm, state[name], donor)
    if comm.rank != donor:
        unpack(state, replica.model, optimizer=replica.optimizer)
    training.settled = furthest[0]
    if training.by_speed:
        training.taken = furthest[1]
    elif replica.synchronizer.in_step:
        training.number = furthest[2]
