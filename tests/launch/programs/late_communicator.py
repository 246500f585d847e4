"""Rank 1 makes the communicator after the others gave up: it is told so within its own time limit."""

from common import WORLD, arguments, say

import pycollectives as pc

arguments()
if WORLD.rank == 1:
    for other in (0, 2):
        WORLD.recv(source=other)
try:
    pc.Communicator(WORLD, timeout=0.5)
except pc.StallError as stall:
    say("stall:", stall)
if WORLD.rank != 1:
    WORLD.send("gave up", 1)
WORLD.Barrier()
say("end")
