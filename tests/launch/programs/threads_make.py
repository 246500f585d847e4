"""Two threads of each rank make communicators, or requests, from one mpi4py communicator at once."""

import threading

import common
import numpy as np
from mpi4py import MPI

import pycollectives as pc

(WHAT,) = common.arguments()
made, errors = [], []
start = threading.Barrier(2)


def make():
    start.wait()
    try:
        if WHAT == "communicators":
            made.append(pc.Communicator(MPI.COMM_WORLD, timeout=20.0))
        else:
            x = np.ones(1)
            made.append(pc.Allreduce_init(x, x.copy(), comm=MPI.COMM_WORLD))
    except Exception as error:
        errors.append(error)


for _ in range(5):
    made.clear()
    threads = [threading.Thread(target=make) for _ in range(2)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not errors, errors
    for one in made:
        one.leave() if WHAT == "communicators" else one.Free()
common.say("made all")
