"""All wait for the gradients of rank 1, which waits in another collective."""

import numpy as np
from common import WORLD, arguments, say

import pycollectives as pc

arguments()
ONE = np.ones(1)
with pc.Communicator(WORLD) as comm:
    gradients, weights = (
        comm.partial_allreduce(count=1, dtype="f8", policy=pc.Full(), name=name) for name in ("gradients", "weights")
    )
    first, second = (weights, gradients) if comm.rank == 1 else (gradients, weights)
    handle = first.contribute(ONE)
    try:
        handle.wait(timeout=None if comm.rank == 1 else 2.0)
    except pc.StallError as stall:
        say(stall)
    other = second.contribute(ONE)
    other.wait(timeout=30)
    handle.wait(timeout=30)
