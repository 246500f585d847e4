"""Rank 0 waits for rank 1, its neighbor, which sends it Ctrl-C; then both go on.

interrupted_hop.py RANKS WHERE: "step", for an update; "iterations", for a token; "dequeue", of a queue by itself.
"""

import os
import signal
import time

import numpy as np
from common import WORLD, arguments, say

import pycollectives as pc

(where,) = arguments()
w, one = np.full(1, float(WORLD.rank)), np.ones(1)
with pc.Communicator(WORLD) as comm:
    mode = pc.hop.BackupWorkers(1) if where == "iterations" else pc.hop.Standard()
    hop = comm.hop(w, topology="ring", mode=mode, max_ig=1)
    queue = comm.update_queue(w, owner=0)
    waits = {
        "step": lambda: hop.step(one),
        "iterations": lambda: next(hop.iterations(1)),
        "dequeue": lambda: queue.dequeue(1, iteration=0),
    }[where]
    if comm.rank == 0:
        for _ in hop.iterations(2) if where == "iterations" else ():  # as far ahead as tokens allow
            hop.step(one)
        if where == "step":
            next(hop.iterations(1))
        WORLD.send(os.getpid(), 1)
        try:
            waits()
            say("was not interrupted")
        except KeyboardInterrupt:
            say("interrupted after", round(time.monotonic() - WORLD.recv(source=1), 1))
        outcome = waits()
        say("then", outcome[0].update if where == "dequeue" else hop.parameters if where == "step" else outcome)
    else:
        pid = WORLD.recv(source=0)
        time.sleep(0.7)
        WORLD.isend(time.monotonic(), 0)
        os.kill(pid, signal.SIGINT)
        time.sleep(1.0)  # the wait ends by the signal, not by what comes now
        queue.enqueue(w, iteration=0)
        for _ in hop.iterations(2 if where == "iterations" else 1):
            hop.step(one)
