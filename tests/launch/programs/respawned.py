"""Ranks die while all sum integers; new processes take their numbers. Every rank checks the sums of all rounds.

respawned.py RANKS SPARES POLICY STEPS VICTIM:EPOCH:SECONDS...    SECONDS after VICTIM is in this epoch
"""

import os
import signal
import sys
import threading
import time

import numpy as np
from common import WORLD, is_new

import pycollectives as pc

spares, policy, steps, *deaths = sys.argv[2:]
times = {(int(rank), int(epoch)): float(time) for rank, epoch, time in (death.split(":") for death in deaths)}

with pc.Communicator(WORLD, on_failure="continue", spares=int(spares), respawn=True, timeout=30.0) as comm:

    def is_doomed() -> None:
        """Die as the arguments say."""
        if (seconds := times.pop((comm.rank, comm.epoch), None)) is not None:
            death = threading.Timer(seconds, os.kill, [os.getpid(), signal.SIGKILL])  # also in calls of MPI
            death.daemon = True
            death.start()

    step, flushed, total = 0, False, np.zeros(1000, np.int64)
    is_doomed()
    comm.on_change(lambda _: is_doomed())
    sums = comm.partial_allreduce(total, op="SUM", policy=policy, name="sums")

    def restore(state: dict) -> None:
        """Continue at the step of another rank."""
        global step, flushed
        step, flushed = state["step"], state["flushed"]
        total[:] = state["total"]

    comm.state(lambda: {"step": step, "flushed": flushed, "total": total}, restore)
    begun = step
    while step < int(steps):
        result, info = sums.allreduce(np.full(1000, 1 << (10 * comm.rank), np.int64))
        total += result
        step += 1
        time.sleep(0.005)
    if not flushed:
        sums.flush()
        total += sums.result
        flushed = True
    same = comm.is_same_on_all_ranks(total)
    counts = [int(total[0]) >> 10 * rank & 1023 for rank in range(comm.size)]
    uniform = bool((total == total[0]).all())
    print(f"rank {comm.rank}: new {is_new} epoch {comm.epoch} same {same} uniform {uniform}", *counts, flush=True)
