"""Rank 0 waits for rank 1, its neighbor, which sends it Ctrl-C; then both go on.

interrupted_neighbor.py RANKS WHERE: "wait" or "final".
"""

import os
import signal
import time

import numpy as np
from common import WORLD, arguments, say

import pycollectives as pc

(where,) = arguments()
w = np.full(1, float(WORLD.rank))
with pc.Communicator(WORLD) as comm:
    ps = comm.push_sum(w, topology=pc.topology.ring(2))
    if comm.rank == 0:
        request = ps.start(w)
        WORLD.send(os.getpid(), 1)
        try:
            request.wait() if where == "wait" else ps.final()
            say("was not interrupted")
        except KeyboardInterrupt:
            say("interrupted after", round(time.monotonic() - WORLD.recv(source=1), 1))
    else:
        pid = WORLD.recv(source=0)
        time.sleep(0.7)
        WORLD.isend(time.monotonic(), 0)
        os.kill(pid, signal.SIGINT)
        time.sleep(1.0)  # the wait ends by the signal, not by this step
        request = ps.start(w)
    request.wait(timeout=30)
    say(ps.result)
