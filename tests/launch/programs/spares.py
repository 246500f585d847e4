"""Ranks die while all sum integers, and are replaced. Every rank checks the sums of all rounds.

spares.py RANKS SPARES RESPAWN POLICY STEPS VICTIM:EPOCH:SECONDS...    SECONDS after VICTIM is in this epoch

SPARES take the numbers of the dead. If RESPAWN is 1 or "background", new processes take the rest, and lines have
members' numbers. In the background, steps follow until all have joined; a death and its newcomer are two epochs.
"""

import os
import signal
import sys
import threading
import time

import numpy as np
from common import WORLD, arguments, is_new

import pycollectives as pc

spares, respawn, policy, steps, *deaths = sys.argv[2:] if is_new else arguments()
times = {(int(rank), int(epoch)): float(time) for rank, epoch, time in (death.split(":") for death in deaths)}
processes = WORLD.allgather(os.getpid())


def kill_later(seconds: float, process: int) -> None:
    """Kill a process, also if it is in a call of MPI."""
    death = threading.Timer(seconds, os.kill, [process, signal.SIGKILL])
    death.daemon = True
    death.start()


how = {"0": False, "1": True}.get(respawn, respawn)
last_epoch = 2 * len(times) if how == "background" else 0
with pc.Communicator(WORLD, on_failure="continue", spares=int(spares), respawn=how, timeout=30.0) as comm:

    def is_doomed() -> None:
        """Die as the arguments say."""
        if (seconds := times.pop((comm.rank, comm.epoch), None)) is not None:
            kill_later(seconds, os.getpid())

    step, epoch, flushed, total = 0, 0, False, np.zeros(1000, np.int64)
    is_doomed()
    comm.on_change(lambda _: is_doomed())
    sums = comm.partial_allreduce(total, op="SUM", policy=policy, name="sums")

    def restore(state: dict) -> None:
        """Continue at the step of another rank."""
        global step, epoch, flushed
        step, epoch, flushed = state["step"], state["epoch"], state["flushed"]
        total[:] = state["total"]

    comm.state(lambda: {"step": step, "epoch": epoch, "flushed": flushed, "total": total}, restore)
    begun = step
    for spare in range(comm.size, WORLD.size):
        if (spare, 0) in times and WORLD.rank == 0:  # while it waits
            kill_later(times[spare, 0], processes[spare])
    while step < int(steps) or epoch < last_epoch:
        result, info = sums.allreduce(np.full(1000, 1 << (10 * comm.rank), np.int64))
        total += result
        step, epoch = step + 1, info.epoch
        time.sleep(0.005 if step < int(steps) else 0.05)
    if not flushed:
        sums.flush()
        total += sums.result
        flushed = True
    same = comm.is_same_on_all_ranks(total)
    counts = [int(total[0]) >> 10 * rank & 1023 for rank in range(comm.size)]
    uniform = bool((total == total[0]).all())
    number = comm.rank if how else WORLD.rank
    line = f"rank {number}: new {is_new} begun at {begun} same {same} uniform {uniform} steps {step}"
    print(line, *counts, flush=True)
