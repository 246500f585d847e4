"""Rank 1 comes late to a round; the others' StallError has and names their flight record."""

import numpy as np
from common import WORLD, arguments, say

import pycollectives as pc

arguments()
ONE = np.ones(1)
with pc.Communicator(WORLD) as comm:
    ar = comm.partial_allreduce(count=1, dtype="f8", policy=pc.Full(), name="gradients")
    if comm.rank != 1:
        handle = ar.contribute(ONE)
        try:
            handle.wait(timeout=0.3)
        except pc.StallError as stall:
            say("stall:", stall)
            say("record:", stall.record["communicators"][0]["collectives"][1]["wait"]["for"])
    WORLD.Barrier()
    if comm.rank == 1:
        ar.contribute(ONE)
