"""Rank 1 of two dies, and the program of the spare differs from that of the survivor.

other_newcomer.py RANKS [restores nothing | fails]
"""

import os
import signal

import numpy as np
from common import WORLD, arguments, say

import pycollectives as pc

how = arguments()
with pc.Communicator(WORLD, on_failure="continue", spares=1, timeout=30.0) as comm:
    is_new = comm.epoch > 0
    if is_new and how == ["fails"]:
        raise FileNotFoundError("the data is not there")
    sums = comm.partial_allreduce(np.zeros(3 if is_new and not how else 2), policy="full", name="sums")
    if not is_new:
        comm.state(lambda: np.zeros(1 << 20), lambda _: None)
    while 1 in comm.members:
        if comm.rank == 1 and not is_new:
            os.kill(os.getpid(), signal.SIGKILL)
        sums.allreduce(np.ones(2))
    say("members", comm.members)
