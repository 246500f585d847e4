"""Collective MPI calls whose result is used only if no rank died in them.

They reduce buffers, for two reasons. In Open MPI 5.0.11, if a rank dies in a gather of objects, the call can return
another rank's data without an error. In addition, mpi4py reduces objects on a communicator of its own, in which a
survivor would wait indefinitely, because nothing revokes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from mpi4py import MPI

from ..support.launchers import is_fault_tolerant
from .arrays import on_host

if TYPE_CHECKING:
    from numpy.typing import NDArray

T = TypeVar("T", bool, int, float)


def average(comm: MPI.Comm, array: NDArray[np.float32]) -> None:
    """Replace an array with its mean over all ranks, which has the same bits everywhere; collective."""
    with on_host(array) as values:
        total = np.empty_like(values)  # if a rank dies in the call, the values stay as they are
        comm.Allreduce(values, total, MPI.SUM)
        check_alive(comm)
        np.divide(total, comm.size, out=values)


def any_of(comm: MPI.Comm, flag: bool) -> bool:
    """Return whether the flag is True on any rank; collective."""
    return reduced(comm, flag, MPI.LOR)


def reduced(comm: MPI.Comm, value: T, op: MPI.Op = MPI.SUM) -> T:
    """Return the sum, or another reduction, of one number from each rank; collective."""
    own = np.array(value)
    result = np.empty_like(own)
    comm.Allreduce(own, result, op)
    check_alive(comm)
    return type(value)(result)


def gathered(comm: MPI.Comm, value: Any) -> list[Any]:
    """Return the objects of all ranks, such as small dictionaries; collective."""
    own = np.frombuffer(MPI.pickle.dumps(value), np.uint8)
    sizes = np.zeros(comm.size, np.int64)
    sizes[comm.rank] = own.size
    comm.Allreduce(MPI.IN_PLACE, sizes, MPI.SUM)
    check_alive(comm)  # before memory is allocated of these sizes
    rows = np.zeros((comm.size, sizes.max()), np.uint8)
    rows[comm.rank, : own.size] = own
    comm.Allreduce(MPI.IN_PLACE, rows, MPI.BOR)
    check_alive(comm)
    return [MPI.pickle.loads(row[:size].tobytes()) for row, size in zip(rows, sizes, strict=True)]


def broadcast(comm: MPI.Comm, array: NDArray[Any], root: int = 0) -> None:
    """Send the values of rank `root` to all ranks; collective. If a rank dies in the call, no array changes."""
    values = array if comm.rank == root else np.empty_like(array)
    comm.Bcast(values, root)
    check_alive(comm)
    if comm.rank != root:
        array[...] = values


def check_alive(comm: MPI.Comm) -> None:
    """Raise an MPI error if MPI reports a death, in a job that continues after deaths; local.

    Call this before you use a collective call's data: in Open MPI 5.0.11, the data may be wrong, without an error, if a
    rank dies in the call.
    """
    if not is_fault_tolerant():
        return
    failed = comm.Get_failed()
    count = failed.Get_size()
    failed.Free()
    if count:
        raise MPI.Exception(MPI.ERR_PROC_FAILED)
