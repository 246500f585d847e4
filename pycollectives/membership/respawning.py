"""Processes that replace dead ranks: the survivors start the program again, by MPI_Comm_spawn.

A new process announces itself in the constructor of its communicator. When all have done so, it merges with the
survivors, and joins them as a spare does (joining.py). If it does not get there, it ends itself, and the survivors do
not merge: MPI_Intercomm_merge would wait for it indefinitely.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from typing import TYPE_CHECKING, NoReturn

from ..support.deadline import Deadline
from ..support.errors import RankFailedError, StallError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mpi4py import MPI

__all__ = ["JOIN_S", "check_world", "end_apart", "end_process", "is_respawned", "join", "start"]

JOIN_S = 50.0
"""Time limit for a rank to join, from its becoming a member; the survivors wait a little longer."""
CONNECT_S = 20.0
"""Time limit for MPI to connect new processes, which takes some milliseconds."""
PAUSE_S = 1e-3
"""Between looks for new processes."""
HERE = 0
"""Tag of messages between new processes and survivors before they merge."""
VARIABLE = "PYC_RESPAWNED"
"""Set in the environment of a process that replaces a dead rank: "1" until it has merged, then "0"."""


def is_respawned() -> bool:
    """Whether this process was started to replace a dead rank, and has not merged yet."""
    return os.environ.get(VARIABLE) == "1"


def check_world(comm: MPI.Comm) -> None:
    """Raise RuntimeError if a process that replaces a dead rank makes a communicator of its own MPI_COMM_WORLD."""
    from ..support.native import MPI

    if VARIABLE in os.environ and comm == MPI.COMM_WORLD:
        raise RuntimeError(
            "this process replaces a dead rank, and its MPI.COMM_WORLD contains no survivors: make the communicator "
            "with respawn=True first, and others of its mpi_comm"
        )


def start(mpi: MPI.Intracomm, count: int) -> MPI.Intracomm | None:
    """Start the program again, `count` times, and return a communicator with the new processes last; collective.

    They call `join`. Returns None if one of them ends before that, or, with a warning, if MPI cannot start them.
    Only the lowest rank calls MPI_Comm_spawn and waits for them: a death during this time is an error of MPI on the
    others. If one dies in the few milliseconds of `_connected`, MPI does not return, and the process ends.
    """
    from ..support.native import MPI

    new = _spawned(count) if mpi.rank == 0 else None
    port = mpi.bcast(MPI.Open_port() if new is not None and _all_are_there(new) else None)
    try:
        if port is not None:
            mpi.Barrier()  # all have lived until here
    except MPI.Exception:
        port = None
        raise
    finally:
        if new is not None:
            for rank in range(new.Get_remote_size()):
                with contextlib.suppress(MPI.Exception):  # it has ended
                    new.send(port, rank, HERE)
    return None if port is None else _connected(lambda: mpi.Accept(port), is_new=False)


def _spawned(count: int) -> MPI.Intercomm | None:
    """Start processes; with a warning None if MPI cannot."""
    from ..support.native import MPI

    info = MPI.Info.Create()
    info.Set("wdir", os.getcwd())
    try:
        return MPI.COMM_SELF.Spawn("env", [f"{VARIABLE}=1", sys.executable, *sys.orig_argv[1:]], count, info)
    except MPI.Exception as error:
        warnings.warn(f"respawn: MPI starts no process, and the others continue: {error}", stacklevel=2)
        return None
    finally:
        info.Free()


def _all_are_there(new: MPI.Intercomm) -> bool:
    """Wait until all new processes have announced themselves, or one has ended."""
    from ..support.native import MPI

    announced = bytearray(1)
    missing, alive, limit = new.Get_remote_size(), True, Deadline(1.2 * JOIN_S)
    while missing and alive:  # MPI reports no death here
        if new.Iprobe(MPI.ANY_SOURCE, HERE):
            new.Recv([announced, MPI.BYTE], MPI.ANY_SOURCE, HERE)
            missing -= 1
            alive = announced[0] == 1
        else:
            time.sleep(PAUSE_S)
            alive = not limit.passed
    return alive


def join() -> MPI.Intracomm:
    """Return the communicator of `start`, in a new process; collective."""
    from ..support.native import MPI

    parent = MPI.Comm.Get_parent()
    parent.Send([b"\1", MPI.BYTE], 0, HERE)
    port = parent.recv(None, 0, HERE)  # at most until `_limit`
    if port is None:
        raise RankFailedError("another rank has died")
    merged = _connected(lambda: MPI.COMM_WORLD.Connect(port), is_new=True)
    os.environ[VARIABLE] = "0"
    _limit.cancel()
    return merged


def _connected(connect: Callable[[], MPI.Intercomm], *, is_new: bool) -> MPI.Intracomm:
    """Return a communicator of survivors and new processes; end the process if MPI does not make it."""
    hung = RuntimeError(f"MPI has not connected the new processes within {CONNECT_S:g} s: another rank may have died")
    limit = threading.Timer(CONNECT_S, end_process, ["a rank that connects to new processes", hung])
    limit.daemon = True
    limit.start()
    try:
        both = connect()
        merged = both.Merge(high=is_new)
        both.Free()
        return merged
    finally:
        limit.cancel()


def end_apart() -> None:
    """Let MPI_Finalize not wait for the processes of other jobs, such as new ones.

    In Open MPI (5.0.11) it meets all of them. If some have died, the others leave this meeting at different times, and
    the last one waits indefinitely (1 of 12 jobs with three deaths). This sets the number of communicators to meet on.
    """
    with contextlib.suppress(OSError, ValueError):  # another MPI
        ctypes.c_int.in_dll(ctypes.CDLL("libmpi.so.40"), "ompi_comm_num_dyncomm").value = 0


def end_process(subject: str, error: BaseException | None) -> NoReturn:
    """End a process that cannot replace a dead rank: the survivors, which wait for it, continue without it."""
    try:
        if error is not None and not isinstance(error, RankFailedError | StallError):
            traceback.print_exception(error)
        why = "its program has ended" if error is None else error
        print(f"pycollectives: {subject}, cannot join the others and ends: {why}", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        while True:  # to MPI, a process that exits is not dead
            os.kill(os.getpid(), signal.SIGKILL)


def _end_unmerged(error: BaseException | None) -> None:
    """End a new process that has not merged, and tell the survivors."""
    from ..support.native import MPI

    if is_respawned():
        MPI.Comm.Get_parent().Send([b"\0", MPI.BYTE], 0, HERE)
        end_process("a process that was started to replace a dead rank", error)


_limit = threading.Timer(
    JOIN_S, _end_unmerged, [StallError(f"it has not made its communicator with respawn=True within {JOIN_S:g} s")]
)
if is_respawned():
    _limit.daemon = True
    _limit.start()
    atexit.register(_end_unmerged, None)
