"""CPU time of this process's threads, from /proc (Linux)."""

from __future__ import annotations

import os
from pathlib import Path

TASKS = Path("/proc/self/task")


def thread_ids() -> set[int]:
    return {int(name) for name in os.listdir(TASKS)}


def cpu_seconds(threads: set[int]) -> float:
    """Of those threads of `threads` that are alive."""
    return sum(_cpu_seconds(thread) for thread in threads)


def _cpu_seconds(thread: int) -> float:
    folder = TASKS / str(thread)
    try:
        return int((folder / "schedstat").read_text().split()[0]) * 1e-9  # nanoseconds
    except (FileNotFoundError, ProcessLookupError):  # the thread is gone, or the kernel keeps no schedstat
        pass
    try:
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    user, system = int(fields[11]), int(fields[12])  # fields 14 and 15 of proc(5); two stand before the ')'
    return (user + system) / os.sysconf("SC_CLK_TCK")
