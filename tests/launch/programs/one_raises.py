"""Rank 1 raises an exception in the middle; the others go on to the end."""

import numpy as np
from common import WORLD, arguments, say

import pycollectives as pc
from pycollectives.policies import parse

policy, where = arguments()
total = 0
with (
    pc.Communicator(WORLD) as comm,
    comm.partial_allreduce(count=1, dtype="int64", policy=parse(policy), missed="sum") as ar,
):
    for step in range(10):
        if comm.rank == 1 and step == 3 and where == "between":
            raise KeyError("of rank 1")
        handle = ar.contribute(np.ones(1, np.int64))
        if comm.rank == 1 and step == 3 and where == "in flight":
            raise KeyError("of rank 1")
        handle.wait(timeout=30)
        total += int(ar.result[0])
    ar.flush(timeout=30)
    total += int(ar.result[0])
say("total", total)
