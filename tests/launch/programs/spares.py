"""Ranks die while all sum integers; spares take their numbers. Every rank checks the sums of all rounds.

spares.py RANKS SPARES POLICY STEPS VICTIM:SECONDS...
"""

import signal
import time

import numpy as np
from common import WORLD, arguments, say

import pycollectives as pc

spares, policy, steps, *deaths = arguments()
dies_after = {int(rank): float(after) for rank, _, after in (death.partition(":") for death in deaths)}
with pc.Communicator(WORLD, on_failure="continue", spares=int(spares), timeout=30.0) as comm:
    step, total, lost = 0, np.zeros(1000, np.int64), set()
    sums = comm.partial_allreduce(total, op="SUM", policy=policy, name="sums")

    def restore(state: dict) -> None:
        """Continue at the step of another rank."""
        global step
        step = state["step"]
        total[:] = state["total"]

    comm.state(lambda: {"step": step, "total": total}, restore)
    begun = step
    if WORLD.rank in dies_after:
        signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGKILL))
        signal.setitimer(signal.ITIMER_REAL, dies_after[WORLD.rank])
    while step < int(steps):
        result, info = sums.allreduce(np.full(1000, 1 << (10 * comm.rank), np.int64))
        total += result
        step += 1
        time.sleep(0.005)
    sums.flush()
    total += sums.result
    same = comm.is_same_on_all_ranks(total)
    counts = [int(total[0]) >> 10 * rank & 1023 for rank in range(comm.size)]
    say("started as", WORLD.rank, "begun at", begun, "same", same, "uniform", bool((total == total[0]).all()), *counts)
