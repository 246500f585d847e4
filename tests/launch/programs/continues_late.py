"""Rank 1 dies while rank 3 computes; the others run into their limit, and continue when rank 3 makes a call.

continues_late.py RANKS
"""

import time

import numpy as np
from common import WORLD, say
from death import die

import pycollectives as pc

with pc.Communicator(WORLD, on_failure="continue", timeout=30) as comm:
    mine = np.zeros(comm.size, np.int64)
    mine[comm.rank] = 1
    ar = comm.partial_allreduce(mine, policy="full")
    total = ar.allreduce(mine)[0].copy()
    if comm.rank == 1:
        die()
    if comm.rank == 3:
        time.sleep(3)
    has_stalled = False
    try:
        total += ar.allreduce(mine, timeout=0.5 if comm.rank != 3 else None)[0]
    except pc.StallError as error:
        say("stalled:", error)
        has_stalled = True
    while has_stalled:
        try:
            ar.flush(timeout=0.5)
            total += ar.result
            break
        except pc.StallError as error:
            say("stalled:", error)
    if comm.rank == 3:
        ar.flush()
        total += ar.result
    assert comm.is_same_on_all_ranks(total)
    say("total:", *total)
say("end")
