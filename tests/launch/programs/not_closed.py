"""Ranks that end without closing: all, one of them, or all with work in flight."""

import numpy as np
from common import WORLD, arguments, say

import pycollectives as pc

(who,) = arguments()
comm = pc.Communicator(WORLD)
policy = pc.Full() if who == "in flight" else pc.Solo()
ar = comm.partial_allreduce(count=3, dtype="f8", name="gradients", policy=policy)
if who == "in flight":
    if comm.rank != 0:
        ar.contribute(np.ones(3))
elif who == "all" or comm.rank == 1:
    ar.allreduce(np.ones(3), timeout=30)
else:
    for _ in range(20):
        ar.allreduce(np.ones(3), timeout=30)
    ar.flush(timeout=30)
    comm.close(timeout=30)
say("end of program")
