"""Rank 1 leaves after its first call, and its program ends; the others go on for a while."""

import time

import numpy as np
from common import WORLD, arguments, say

import pycollectives as pc
from pycollectives.policies import parse

(policy,) = arguments()
with pc.Communicator(WORLD) as comm:
    ar = comm.partial_allreduce(count=1, dtype="int64", policy=parse(policy), missed="sum")
    total = int(ar.allreduce(np.ones(1, np.int64), timeout=30)[0][0])
    if comm.rank == 1:
        ar.leave()
    else:
        for step in range(10):
            if step % 5 == comm.rank:
                time.sleep(0.02)
            total += int(ar.allreduce(np.ones(1, np.int64), timeout=30)[0][0])
        ar.flush(timeout=30)
        total += int(ar.result[0])
        say("total", total)
