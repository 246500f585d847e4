"""Rank 1 makes the communicator after the others gave up: it is told so within its own time limit."""

import time

from common import WORLD, arguments, say

import pycollectives as pc

arguments()
if WORLD.rank == 1:
    time.sleep(1.5)
try:
    pc.Communicator(WORLD, timeout=0.5)
except pc.StallError as stall:
    say("stall:", stall)
WORLD.Barrier()
say("end")
