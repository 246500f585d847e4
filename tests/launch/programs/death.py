"""How a rank of a program dies; the others read when."""

import signal
import threading
import time
from os import environ, getpid, kill
from pathlib import Path

_file = Path(environ["DEATH"])


def die() -> None:
    """Note the time and end by SIGKILL."""
    _file.write_text(str(time.monotonic()))
    kill(getpid(), signal.SIGKILL)


def die_later(seconds: float) -> None:
    """Die while the program goes on."""
    threading.Thread(target=lambda: (time.sleep(seconds), die()), daemon=True).start()


def time_of_death() -> float:
    """Return it, on the monotonic clock of this machine."""
    return float(_file.read_text())
