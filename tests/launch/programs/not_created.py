"""Rank 1 does not call what is collective: the others are told, within the time limit."""

import numpy as np
from common import WORLD, arguments, say

import pycollectives as pc

arguments()
WORLD.Barrier()  # however long ranks take to start
comm = pc.Communicator(WORLD, timeout=5.0)
if comm.rank != 1:
    try:
        comm.partial_allreduce(np.zeros(3), name="gradients")
    except pc.StallError as stall:
        say("stall:", stall)
    try:
        comm.partial_allreduce(np.zeros(3), name="gradients")
    except pc.ClosedError as error:
        say("again:", error)
WORLD.Barrier()
comm.abort()
say("end")
