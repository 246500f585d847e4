"""How a rank of a program dies; the others read when."""

import signal
import threading
import time
from os import environ, getpid, kill
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
    """Die while the program continues. Default: by the signal in DEATH_BY, or SIGKILL."""
    how = signal.Signals[environ.get("DEATH_BY", "SIGKILL")] if how is None else how
    threading.Thread(target=lambda: (time.sleep(seconds), die(how)), daemon=True).start()


def time_of_death() -> float:
    """Return it, on the monotonic clock of this machine."""
    return float(_file.read_text())
