"""Runs a command for a limited time, and ends everything that it has started."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DEATH_SIGNAL, CHILD_SUBREAPER = 1, 36
"""Of prctl(2)."""
GRACE = 2.0
"""Seconds for killed processes to end. One that is stuck in a driver is left behind."""

libc = ctypes.CDLL(None)


@dataclass(frozen=True)
class Ended:
    """`status` is None if the command was stopped at its limit."""

    status: int | None
    seconds: float


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent has ended, so that `run` finds them in any session."""
    libc.prctl(CHILD_SUBREAPER, 1, 0, 0, 0)


def run(command: Sequence[str], seconds: float, log: Path, environment: Mapping[str, str], cwd: Path) -> Ended:
    """Run a command, whose output goes to the end of `log`; on return none of its processes is left."""
    begin = time.monotonic()
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            preexec_fn=_die_with_parent,
        )  # fmt: skip
    status: int | None = None
    with contextlib.suppress(subprocess.TimeoutExpired):
        status = process.wait(max(0.0, seconds))
    _kill_descendants()
    process.poll()  # or Python would warn that it still runs
    return Ended(status, time.monotonic() - begin)


def _die_with_parent() -> None:
    libc.prctl(DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def _kill_descendants() -> None:
    until = time.monotonic() + GRACE
    while (found := _descendants(os.getpid())) and time.monotonic() < until:
        for process in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.02)


def _descendants(root: int) -> list[int]:
    """Those that have not ended, or that nobody has waited for."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(entry.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.parent.name))
    found, left = [], [root]
    while left:
        left += (more := children.get(left.pop(), []))
        found += more
    return found
