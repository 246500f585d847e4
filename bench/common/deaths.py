"""Planned deaths of ranks, and survivors that are disturbed."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ENDS", "HELD_S", "STOPPED_S", "Death"]

ENDS = {
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "segv": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "abort": os.abort,
}
"""Ends of a process. Open MPI 5.0.11 does not report one that ends by `_exit`."""
STOPPED_S, HELD_S = 1, 3
"""Seconds for which `--disturb` stops a survivor, or holds its GIL."""


class Death(NamedTuple):
    delay: float  # in seconds, from the beginning of the rounds
    file: Path  # gets the time
    draw: np.random.Generator  # the same on all ranks
    by: str  # one of `ENDS`

    @classmethod
    def planned(cls, every: float, seed: list[int], file: Path, by: str) -> Death:
        """Plan a death after `every` seconds on average. `file` gets the time."""
        draw = np.random.default_rng(seed)
        return cls(float(every * draw.uniform(0.5, 1.5)), file, draw, by)

    def time(self) -> float:
        """Return the time of the death, as `time.monotonic` of all processes of this machine."""
        return float(self.file.read_text())

    def die_later(self) -> None:
        """End this process at its time."""
        threading.Thread(target=self._die, daemon=True).start()

    def disturb_later(self, how: str) -> None:
        """Stop this process ("stop"), or hold its GIL ("gil"), from shortly before the death."""
        threading.Thread(target=self._disturb, args=(how,), daemon=True).start()

    def _die(self) -> None:
        time.sleep(self.delay)
        unfinished = self.file.with_suffix(f".{os.getpid()}")
        unfinished.write_text(repr(time.monotonic()))
        unfinished.rename(self.file)
        ENDS[self.by]()

    def _disturb(self, how: str) -> None:
        time.sleep(max(self.delay - STOPPED_S / 2, 0))
        if how == "stop":
            subprocess.Popen(["sh", "-c", f"sleep {STOPPED_S}; kill -CONT {os.getpid()}"])
            os.kill(os.getpid(), signal.SIGSTOP)
        else:
            ctypes.PyDLL(None).sleep(HELD_S)  # with the GIL, unlike CDLL
