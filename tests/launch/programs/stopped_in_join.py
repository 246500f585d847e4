"""Rank 1 is stopped (SIGSTOP) in the middle of its array, which it reduces into the sum of a round by itself.

Rank 0 is interrupted (Ctrl-C) in its blocking call, and runs into a time limit in the next. Then rank 1 goes on, and
nothing is lost: the array of the interrupted call may be overwritten.
"""

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
from common import WORLD, arguments, say
from gate import Gate

import pycollectives as pc

arguments()
COUNT = 1 << 18
opened = Path(os.environ["GATE"])
gate = Gate(np.full(COUNT, 10.0))


def open_later() -> None:
    while not opened.exists():
        time.sleep(0.01)
    gate.open()


with pc.Communicator(WORLD) as comm, comm.partial_allreduce(count=COUNT, dtype="f8", policy=pc.Full()) as ar:
    pids = WORLD.allgather(os.getpid())
    x = np.ones(COUNT)
    if comm.rank == 1:
        with gate:
            threading.Thread(target=open_later).start()
            result, info = ar.allreduce(gate.array, timeout=60)
            say("round", info.round, result.min(), result.max())
    else:
        time.sleep(0.5)  # rank 1 is at the page
        os.kill(pids[1], signal.SIGSTOP)
        threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            ar.allreduce(x, timeout=60)
        except KeyboardInterrupt:
            say("interrupted")
        x[:] = 2.0
        call = ar.contribute(x)
        x[:] = -1.0
        try:
            call.wait(timeout=0.5)
        except pc.StallError as stall:
            say("stall:", stall)
        os.kill(pids[1], signal.SIGCONT)
        opened.touch()
    if comm.rank == 1:
        call = ar.contribute(np.full(COUNT, 20.0))
    info = call.wait(timeout=60)
    say("round", info.round, ar.result.min(), ar.result.max())
