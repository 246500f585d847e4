"""Rank 1 calls what is collective after the others gave up: it is told so, and by whom, not that others are missing."""

import numpy as np
from common import WORLD, arguments, say

import pycollectives as pc

arguments()
WORLD.Barrier()  # however long ranks take to start
comm = pc.Communicator(WORLD, timeout=5.0)
if comm.rank == 1:
    for other in (0, 2):
        WORLD.recv(source=other)
try:
    comm.partial_allreduce(np.zeros(3), name="gradients")
except pc.StallError as stall:
    say("stall:", stall)
if comm.rank != 1:
    WORLD.send("gave up", 1)
comm.close(timeout=30.0)
say("end")
