"""Processes that replace dead ranks: the survivors start the program again with MPI_Comm_spawn.

Only the lowest survivor starts the processes. It waits until each process has announced itself in the constructor of
its communicator. The other survivors wait in a barrier, where MPI reports a death as an error. Afterwards, all connect.
If a rank dies in the calls that connect, MPI does not return. With `respawn="background"`, all survivors continue while
a thread waits. A new process that cannot announce itself ends.
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
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ..support.deadline import Deadline
from ..support.errors import RankFailedError, StallError
from ..support.interrupts import interrupts_later

if TYPE_CHECKING:
    from collections.abc import Callable

    from mpi4py import MPI

__all__ = ["JOIN_S", "Starting", "check_world", "connect", "end_apart", "end_process", "is_respawned", "join"]

JOIN_S = 50.0
"""Time limit for a rank to join after it has become a member; the survivors wait a little longer."""
START_S = 50.0
"""Time limit for a new process to reach the constructor of its communicator."""
ANSWER_S = 10.0
"""Time limit for new processes to answer after all have announced themselves."""
CONNECT_S = 20.0
"""Time limit for MPI to connect new processes, which takes some milliseconds."""
PAUSE_S = 1e-3
"""Pause between looks for new processes."""
KEEP_ALIVE_S = 20.0
"""Interval at which processes that wait to join are asked whether they are alive."""
TAG = 0
"""Tag of messages between new processes and the survivor that has started them."""
THREAD = "pycollectives-respawn"
VARIABLE = "PYC_RESPAWNED"
"""Set to the process id in the environment of a new process, which removes it."""
OF_THE_LAUNCHER = (b"OMPI_", b"PMIX_", b"PRTE_", b"PMI_", b"SLURM_", VARIABLE.encode())
"""Prefixes of variables that are not passed to a new process: the launcher sets its own."""
BEGIN = (
    "import os, signal, sys; signal.alarm(int(sys.argv[1])); os.chdir(sys.argv[2]); "
    f"os.environ['{VARIABLE}'] = str(os.getpid()); os.execv(sys.argv[3], sys.argv[3:])"
)
"""Code that a new process runs before its program. An alarm ends the process if it hangs, even in MPI_Init."""

_folder = Path.cwd()  # folder and variables may change before a death
_environment = Path("/proc/self/environ").read_bytes().split(b"\0")
_was_new = os.environ.pop(VARIABLE, "") == str(os.getpid())  # False in a child of a new process
_new_process = os.getpid() if _was_new else None  # None once it has merged


def is_respawned() -> bool:
    """Whether this process was started to replace a dead rank, and has not connected yet."""
    return _new_process == os.getpid()  # not in its children


def check_world(comm: MPI.Comm) -> None:
    """Raise RuntimeError if a process that replaces a dead rank makes a communicator from its own MPI_COMM_WORLD."""
    from ..support.native import MPI

    if _was_new and comm == MPI.COMM_WORLD:
        raise RuntimeError(
            "this process replaces a dead rank, and its MPI.COMM_WORLD contains no survivors: "
            "create the communicator with respawn=True first, and no other communicator of several ranks"
        )


class Starting:
    """New processes, on the lowest survivor.

    If `behind`, a thread starts the processes, and keeps them alive until `brought` is called.

    Attributes
    ----------
    count
        The number of processes.
    have_come
        Whether all processes have announced themselves.
    """

    def __init__(self, count: int, *, behind: bool) -> None:
        self.count = count
        self.have_come = False
        self._new: MPI.Intercomm | None = None
        self._must_end = threading.Event()
        self._thread = threading.Thread(target=self._run, name=THREAD, daemon=True) if behind else None
        if self._thread is not None:
            self._thread.start()

    def _run(self) -> None:
        self._start(self._must_end.is_set)
        while self.have_come and not self._must_end.wait(KEEP_ALIVE_S):
            self.have_come = self._answer(lambda: False)

    def _start(self, gives_up: Callable[[], bool]) -> None:
        self._new = _spawned(self.count)
        self.have_come = self._new is not None and _have_announced(self._new, 1.2 * START_S, gives_up)

    @property
    def has_failed(self) -> bool:
        """Whether a process has ended, or did not announce itself in time."""
        return self._thread is not None and not self._thread.is_alive()

    def brought(self, gives_up: Callable[[], bool]) -> bool:
        """Return whether all processes have announced themselves and are alive; False if `gives_up` returns True."""
        if self._thread is None:
            self._start(gives_up)
        self._end_thread()
        return self.have_come and self._answer(gives_up)

    def _end_thread(self) -> None:
        self._must_end.set()
        if self._thread is not None:
            self._thread.join()

    def _answer(self, gives_up: Callable[[], bool]) -> bool:
        """Ask all processes whether they are alive, because MPI does not report their deaths."""
        assert self._new is not None
        self.tell("ask")
        return _have_announced(self._new, ANSWER_S, gives_up)

    def tell(self, told: tuple[str, object] | str | None) -> None:
        """Send the processes the port to connect to, "ask" to get an answer, or None to end them."""
        from ..support.native import MPI

        if self._new is None:
            return
        for rank in range(self._new.Get_remote_size()):
            with contextlib.suppress(MPI.Exception):  # it has ended
                self._new.send(told, rank, TAG)

    def free(self) -> None:
        """Free the processes' communicator if all have announced themselves.

        Otherwise a process may still send a message, which a later communicator with the same number could receive.
        """
        if self._new is not None and self.have_come:
            self._new.Free()

    def end(self) -> None:
        """End the processes and the thread."""
        self._end_thread()
        self.tell(None)
        self.free()


def connect(mpi: MPI.Intracomm, starting: Starting | None, description: object) -> MPI.Intracomm | None:
    """Return a communicator whose highest ranks are the new processes, which call `join`; collective.

    Only the lowest rank passes `starting`. In the new processes, `join` returns the communicator and `description`.
    Return None if the processes do not announce themselves.
    """
    from ..support.native import MPI

    told: tuple[str, object] | None = None
    merged: MPI.Intracomm | None = None
    try:
        have_come = starting is not None and starting.brought(mpi.Is_revoked)
        _wait_for(mpi.Ibarrier())  # the lowest rank arrives last
        with interrupts_later():
            port = mpi.bcast(MPI.Open_port() if have_come else None)
            if port is None:
                return None
            mpi.Barrier()  # fails if a rank has died
            told = (port, description)
            merged = _connected(starting, told, lambda: mpi.Accept(port), is_new=False)
        return merged  # noqa: RET504  an interrupt may be raised at the end of the block above
    except BaseException:
        if merged is not None:
            merged.Revoke()  # others may wait for this rank
        raise
    finally:
        if starting is not None:
            if told is None:
                starting.tell(None)
            starting.free()


def _spawned(count: int) -> MPI.Intercomm | None:
    """Start processes, and return their communicator; None if MPI cannot start them."""
    from ..support.native import MPI

    environment = [setting for setting in _environment if b"=" in setting and not setting.startswith(OF_THE_LAUNCHER)]
    program = [sys.executable, *sys.orig_argv[1:]]
    begin = [sys.executable, "-S", "-c", BEGIN, str(round(START_S)), str(_folder), *program]
    try:
        return MPI.COMM_SELF.Spawn("env", [*environment, *map(os.fsencode, begin)], count)  # type: ignore[list-item]
    except Exception as error:
        print(f"pycollectives: MPI cannot start a process; the others continue: {error}", file=sys.stderr, flush=True)
        return None


def _have_announced(new: MPI.Intercomm, seconds: float, gives_up: Callable[[], bool]) -> bool:
    """Wait until all new processes have announced themselves; False if one has ended, or `gives_up` returns True."""
    from ..support.native import MPI

    announced, missing, limit = bytearray(1), new.Get_remote_size(), Deadline(seconds)
    while missing:
        if new.Iprobe(MPI.ANY_SOURCE, TAG):
            new.Recv([announced, MPI.BYTE], MPI.ANY_SOURCE, TAG)
            missing -= 1
            if announced[0] == 0:
                return False
        elif limit.passed or gives_up():
            return False
        else:
            time.sleep(PAUSE_S)
    return True


def _wait_for(request: MPI.Request) -> None:
    """Wait as `request.Wait` does, but let signals interrupt the wait."""
    while not request.Test():
        time.sleep(PAUSE_S)


def join() -> tuple[MPI.Intracomm, Any]:
    """In a new process, return the communicator that `connect` makes and its `description`; collective."""
    global _new_process
    from ..support.native import MPI

    parent = MPI.Comm.Get_parent()
    told: Any = "ask"
    while told == "ask":
        signal.alarm(round(2 * START_S))  # the survivor that has started this process waits for others, and may die
        parent.Send([b"\1", MPI.BYTE], 0, TAG)
        told = parent.recv(None, 0, TAG)
    if told is None:
        raise RankFailedError("the survivors continue without this process")
    port, description = told
    merged = _connected(None, told, lambda: MPI.COMM_WORLD.Connect(port), is_new=True)
    signal.alarm(0)
    _new_process = None
    return merged, description


def _connected(
    starting: Starting | None, told: tuple[str, object], meet: Callable[[], MPI.Intercomm], *, is_new: bool
) -> MPI.Intracomm:
    """Return a communicator of survivors and new processes; end this process if MPI takes too long."""
    hung = RuntimeError(f"MPI did not connect the new processes within {CONNECT_S:g} s: another rank may have died")
    limit = threading.Timer(CONNECT_S, end_process, ["a rank that connects to new processes", hung])
    limit.daemon = True
    limit.start()
    try:
        if starting is not None:
            starting.tell(told)
        both = meet()
        merged = both.Merge(high=is_new)
        both.Free()
        return merged
    finally:
        limit.cancel()


def end_apart() -> None:
    """Keep MPI_Finalize from waiting for processes of other jobs, such as new processes.

    In Open MPI (5.0.11), MPI_Finalize synchronizes with all of them. If some have died, the others leave it at
    different times, and the last one waits indefinitely (1 of 12 jobs with three deaths). This function resets the
    number of communicators on which MPI_Finalize synchronizes.
    """
    with contextlib.suppress(OSError, ValueError):  # another MPI
        library = ctypes.CDLL("libmpi.so.40", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        ctypes.c_int.in_dll(library, "ompi_comm_num_dyncomm").value = 0


def end_process(subject: str, error: BaseException | None) -> NoReturn:
    """End a process that cannot replace a dead rank, so that the survivors stop waiting for it."""
    try:
        if error is not None and not isinstance(error, RankFailedError | StallError):
            traceback.print_exception(error)
        why = "its program has ended" if error is None else error
        print(f"pycollectives: {subject}, cannot join the others and ends: {why}", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        while True:  # for MPI, a process that exits is not dead
            os.kill(os.getpid(), signal.SIGKILL)


def _end_unmerged() -> None:
    """End a new process whose program ends before it has connected, and notify the survivor that started it."""
    if not is_respawned():
        return
    try:
        from ..support.native import MPI

        MPI.Comm.Get_parent().Send([b"\0", MPI.BYTE], 0, TAG)
    finally:
        end_process("a process that was started to replace a dead rank", None)


if _was_new:
    atexit.register(_end_unmerged)
