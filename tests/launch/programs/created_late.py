"""Rank 1 calls what is collective after the others gave up: it is told so, and by whom, not that others are missing."""

import time

import numpy as np
from common import WORLD, arguments, say

import pycollectives as pc

arguments()
WORLD.Barrier()  # however long ranks take to start
comm = pc.Communicator(WORLD, timeout=3.0)
if comm.rank == 1:
    time.sleep(6.0)
try:
    comm.partial_allreduce(np.zeros(3), name="gradients")
except pc.StallError as stall:
    say("stall:", stall)
comm.close(timeout=30.0)
say("end")
