"""Rank 1 is killed while the others are in calls of the whole communicator, which they leave open at the end.

killed_elsewhere.py RANKS RANKS_PER_NODE CALL
"""

import os
import signal
import time

import numpy as np
from common import WORLD, arguments, say

import pycollectives as pc

ranks_per_node, call = arguments()
x = np.ones(4)
comm, left_by_exception = (pc.Communicator(WORLD, ranks_per_node=int(ranks_per_node), timeout=30) for _ in range(2))
ar = comm.partial_allreduce(x, policy=pc.Full())
left_by_exception.partial_allreduce(x)
ar.allreduce(x, timeout=20)
if comm.rank == 1:
    time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGKILL)
calls = {
    "create": lambda of: of.partial_allreduce(x),
    "is_same_on_all_ranks": lambda of: of.is_same_on_all_ranks(x),
}
try:
    calls[call](comm)
except pc.RankFailedError as error:
    say(f"{error}")
try:
    with left_by_exception:
        try:
            calls[call](left_by_exception)
        except pc.RankFailedError:
            raise KeyError("mine") from None
except KeyError as error:
    say(f"{error!r}")
say("end")
