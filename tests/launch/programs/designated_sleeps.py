"""The rank that `Majority` designates for the next round is asleep: the others are told which it is."""

import numpy as np
from common import WORLD, arguments, say

import pycollectives as pc

arguments()
ONE = np.ones(1)
with pc.Communicator(WORLD) as comm:
    first = comm.partial_allreduce(count=1, dtype="f8", policy=pc.Majority(seed=5))
    second = comm.partial_allreduce(count=1, dtype="f8", policy=pc.Majority(seed=5), name="gradients")
    # The rounds of a collective are drawn from the seed alone, so round 0 of both waits for the same rank.
    designated = first.allreduce(ONE, timeout=30)[1].initiator
    designated = WORLD.bcast(designated)
    if comm.rank == designated:
        for _ in range(comm.size - 1):
            WORLD.recv()
        say("designated", designated)
        second.allreduce(ONE, timeout=30)
    else:
        handle = second.contribute(ONE)
        try:
            handle.wait(timeout=0.5)
        except pc.StallError as stall:
            say("stall:", stall)
        WORLD.send(None, designated)
        say("then:", handle.wait(timeout=30).initiator)
