"""The output folder: the same for all ranks, and used by one training job at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import secrets
from typing import TYPE_CHECKING, TypeVar, cast

from .reductions import gathered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mpi4py import MPI

T = TypeVar("T")


def together(what: str, comm: MPI.Comm, action: Callable[[], T], *, by: int | None = None) -> T:
    """Run an action on every rank, or only on rank `by`; if it fails, all ranks raise ValueError about `what`."""
    done, failed, cause = None, None, None
    if by in (None, comm.rank):
        try:
            done = action()
        except Exception as error:  # whatever it is, such as BadZipFile: the others wait for an answer
            failed, cause = f"rank {comm.rank}: {str(error) or type(error).__name__}", error
    outcomes = gathered(comm, (done if by is not None else None, failed))
    failures = [text for _, text in outcomes if text is not None]
    if failures:
        raise ValueError(f"{what}: {failures[0]}") from cause
    return cast("T", done if by is None else outcomes[by][0])


def require_shared(folder: Path, comm: MPI.Comm) -> None:
    """Make a folder, and check that it is the same for all ranks, and writable; collective."""
    token = together("output", comm, lambda: _leave_token(folder), by=0)
    try:
        together("output", comm, lambda: _require_token(folder, token))
    finally:
        if comm.rank == 0:
            (folder / token).unlink()


def _leave_token(folder: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    token = f".token-{secrets.token_hex(8)}"
    (folder / token).touch(exist_ok=False)
    return token


def _require_token(folder: Path, token: str) -> None:
    if not (folder / token).exists():
        raise ValueError(f"expected rank 0's file in {folder.absolute()}, found none: ranks must share the folder")


@contextlib.contextmanager
def locked(folder: Path | None, comm: MPI.Comm) -> Iterator[None]:
    """Lock a folder, if there is one, against other training jobs during the block; entering the block is collective.

    Rank 0's process holds the lock. A file system without locks is not protected.
    """
    with contextlib.ExitStack() as stack:
        if folder is not None:
            together("output", comm, lambda: _lock(folder, stack), by=0)
        yield


def _lock(folder: Path, until: contextlib.ExitStack) -> None:
    # Not through a link, whose target would be emptied.
    descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    file = until.enter_context(os.fdopen(descriptor, "r+", encoding="utf-8"))
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        raise ValueError(
            f"another training job is writing to {folder.absolute()} ({file.read()}); choose another output folder, or "
            "wait until that job ends"
        ) from None
    except OSError:  # not every file system has locks
        return
    file.truncate(0)  # not deleted: a process that has opened it would lock a file without a name
    print(f"process {os.getpid()} on {platform.node()}", end="", file=file, flush=True)
