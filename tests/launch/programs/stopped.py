"""Rank 1 is stopped (SIGSTOP) in the middle of a round; rank 0 is told that it does not answer, and wakes it."""

import os
import signal
import time

import numpy as np
from common import WORLD, arguments, say

import pycollectives as pc

arguments()
ONE = np.ones(1)
with pc.Communicator(WORLD) as comm:
    ar = comm.partial_allreduce(count=1, dtype="f8", policy=pc.Full(), name="gradients")
    pids = WORLD.allgather(os.getpid())
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
        result, _ = ar.allreduce(ONE, timeout=30)
    else:
        time.sleep(0.5)  # for rank 1 to stop
        handle = ar.contribute(ONE)
        try:
            handle.wait(timeout=1.0)
        except pc.StallError as stall:
            say("stall:", stall)
        if comm.rank == 0:
            for rank in range(2, comm.size):
                WORLD.recv(source=rank)
            os.kill(pids[1], signal.SIGCONT)
        else:
            WORLD.send(None, 0)
        handle.wait(timeout=30)
        result = ar.result
    say("sum", result[0])
