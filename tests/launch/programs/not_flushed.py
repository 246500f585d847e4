"""What programs do between steps, with a quorum and without a flush: rank 0 makes one step more than the others."""

import time

import numpy as np
from common import WORLD, arguments, say

import pycollectives as pc

ONE = np.ones(1)
with pc.Communicator(WORLD) as comm:
    CALLS = {
        "mean of MPI": lambda: WORLD.allreduce(1.0) / comm.size,
        "barrier of MPI": WORLD.Barrier,
        "mean": lambda: comm.mean(1.0),
        "is_same_on_all_ranks": lambda: comm.is_same_on_all_ranks(ONE),
        "preduce": lambda: comm.preduce(ONE.copy(), range(comm.size)),
        "partial_allreduce": lambda: comm.partial_allreduce(ONE, name="other").leave(),
    }
    gradients = comm.partial_allreduce(ONE, policy="quorum:2", name="gradients")
    for between in arguments():
        WORLD.Barrier()
        for _ in range(2 if comm.rank == 0 else 1):
            try:
                gradients.contribute(ONE).wait(timeout=5.0)
            except pc.StallError:
                say("stalled")
        begin = time.monotonic()
        try:
            say("result", CALLS[between]())
        except RuntimeError as error:
            say("refused:", error, "after", time.monotonic() - begin)
            gradients.flush()
            say("result", CALLS[between]())
        gradients.flush()
