"""Rank 1 makes no communicator: the others are told so within their time limit."""

from common import WORLD, arguments, say

import pycollectives as pc

arguments()
if WORLD.rank != 1:
    try:
        pc.Communicator(WORLD, timeout=0.5)
    except pc.StallError as stall:
        say("stall:", stall)
WORLD.bcast(None)
say("end")
