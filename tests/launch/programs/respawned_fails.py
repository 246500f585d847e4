"""Rank 1 of two dies, and the program that starts again in its place does not join.

respawned_fails.py RANKS HOW
"""

import os
import signal
import sys

import numpy as np
from common import WORLD, is_new, say

import pycollectives as pc

how = sys.argv[2]
if is_new and how == "raises":
    raise FileNotFoundError("the data is not there")
if is_new and how == "exits":
    sys.exit(0)
if is_new and how == "of its world":
    pc.Communicator(WORLD)
respawn = "background" if how == "is not needed" else True  # then rank 0 ends before it
with pc.Communicator(WORLD, on_failure="continue", respawn=respawn, timeout=30.0) as comm:
    if is_new and how == "makes a second":
        pc.Communicator(WORLD, on_failure="continue", respawn=True)
    sums = comm.partial_allreduce(np.zeros(3 if is_new and how == "makes another" else 2), policy="full", name="sums")
    while 1 in comm.members:
        if comm.rank == 1 and not is_new:
            os.kill(os.getpid(), signal.SIGKILL)
        sums.allreduce(np.ones(2))
    say("members", comm.members)
