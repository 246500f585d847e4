"""Rank 0 waits for rank 1, which sends it Ctrl-C instead of coming."""

import os
import signal
import time

import numpy as np
from common import WORLD, arguments, say

import pycollectives as pc

(where,) = arguments()
ONE = np.ones(1)


def wait_in(comm, ar):
    if where == "wait":
        ar.contribute(ONE).wait()
    elif where == "allreduce":
        ar.allreduce(ONE)
    elif where == "flush":
        ar.flush()
    elif where == "creation":
        comm.partial_allreduce(count=1, dtype="f8")
    elif where == "close":
        ar.leave()
        comm.close()
    elif where == "communicator":
        pc.Communicator(WORLD)


comm = pc.Communicator(WORLD)
ar = comm.partial_allreduce(count=1, dtype="f8", policy=pc.Full())
if comm.rank == 0:
    WORLD.send(os.getpid(), 1)
    sent = None
    try:
        wait_in(comm, ar)
        say("was not interrupted")
    except KeyboardInterrupt:
        sent = WORLD.recv(source=1)
        say("interrupted after", round(time.monotonic() - sent, 1))
elif comm.rank == 1:
    pid = WORLD.recv(source=0)
    time.sleep(0.7)
    WORLD.isend(time.monotonic(), 0)
    os.kill(pid, signal.SIGINT)
WORLD.Barrier()
comm.abort()
say("end")
