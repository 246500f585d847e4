"""Ranks die while all sum integers; spares take their numbers. Every rank checks the sums of all rounds.

spares.py RANKS SPARES POLICY STEPS VICTIM:SECONDS[@EPOCH]...    SECONDS after the members have changed so often
"""

import os
import signal
import threading
import time

import numpy as np
from common import WORLD, arguments, say

import pycollectives as pc

spares, policy, steps, *deaths = arguments()
times = {int(rank): time for rank, _, time in (death.partition(":") for death in deaths)}
seconds, _, epoch = times.get(WORLD.rank, "-1").partition("@")
signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGKILL))
processes = WORLD.allgather(os.getpid())
with pc.Communicator(WORLD, on_failure="continue", spares=int(spares), timeout=30.0) as comm:
    step, flushed, total = 0, False, np.zeros(1000, np.int64)
    sums = comm.partial_allreduce(total, op="SUM", policy=policy, name="sums")

    def restore(state: dict) -> None:
        """Continue at the step of another rank."""
        global step, flushed
        step, flushed = state["step"], state["flushed"]
        total[:] = state["total"]

    comm.state(lambda: {"step": step, "flushed": flushed, "total": total}, restore)
    begun = step
    for spare in range(comm.size, WORLD.size):
        if spare in times and WORLD.rank == 0:  # while it waits
            threading.Timer(float(times[spare]), os.kill, [processes[spare], signal.SIGKILL]).start()
    while step < int(steps):
        if float(seconds) > 0 and comm.epoch >= int(epoch or 0):
            signal.setitimer(signal.ITIMER_REAL, float(seconds))
            seconds = "-1"
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
    say("started as", WORLD.rank, "begun at", begun, "same", same, "uniform", bool((total == total[0]).all()), *counts)
