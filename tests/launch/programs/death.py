"""How a rank of a program dies; the others read when."""

import resource
import signal
import sys
import threading
import time
from os import abort, environ, getpid, kill
from pathlib import Path

_file = Path(environ["DEATH"])


def note_death() -> None:
    """Note the time, of who dies now."""
    _file.write_text(str(time.monotonic()))


def die(how: int = signal.SIGKILL) -> None:
    """Note the time and end by a signal."""
    kill_other(getpid(), how)


def kill_other(process: int, how: int = signal.SIGKILL) -> None:
    """Note the time, and have a process of this job end by a signal."""
    note_death()
    kill(process, how)


def die_later(seconds: float, how: int | None = None) -> None:
    """Die while the program continues. Default: as DEATH_BY says, by the name of a signal or "memory"; or SIGKILL."""
    by = environ.get("DEATH_BY", "SIGKILL")
    ends = run_out_of_memory if how is None and by == "memory" else lambda: die(how or signal.Signals[by])
    threading.Thread(target=lambda: (time.sleep(seconds), ends()), daemon=True).start()


def run_out_of_memory() -> None:
    """Allocate until the limit of this process, and abort, as an allocation that fails in C++ does."""
    note_death()
    sys.setswitchinterval(10.0)  # no other thread of Python raises a MemoryError first, which would be no death
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + (1 << 26), resource.RLIM_INFINITY))
    blocks = []
    try:
        while True:
            blocks.append(bytearray(1 << 20))
    except MemoryError:
        abort()


def time_of_death() -> float:
    """Return it, on the monotonic clock of this machine."""
    return float(_file.read_text())
