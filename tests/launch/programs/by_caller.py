"""`progress="caller"` from the environment: no thread; messages move in calls only."""

import threading
import time
from pathlib import Path

import numpy as np
from common import WORLD, arguments, say

import pycollectives as pc

arguments()


def our_threads() -> int:
    return sum("pyc-progress" in (task / "comm").read_text() for task in Path("/proc/self/task").iterdir())


with pc.Communicator(WORLD) as comm:
    say("progress", comm.progress, "threads", our_threads())
    ar = comm.partial_allreduce(count=1, dtype="int64", policy=pc.Solo(), missed="sum")
    total = 0
    for step in range(5):
        if step % comm.size == comm.rank:
            end = time.monotonic() + 0.02
            while time.monotonic() < end:  # computes, and lets the others go on
                comm.advance()
        total += int(ar.allreduce(np.ones(1, np.int64), timeout=30)[0][0])
    ar.flush(timeout=30)
    say("total", total + int(ar.result[0]), "threads", threading.active_count())
