"""Ranks die one after the other, and the others continue Hop's iterations: models are whole, and no number is missing.

hops.py RANKS MODE APART STEPS SEED VICTIM...: after every tenth iteration all ranks wait for each other.
"""

import random
import time

import numpy as np
from common import WORLD, arguments, say
from death import die_later

import pycollectives as pc

mode, apart, *numbers = arguments()
steps, seed, *victims = map(int, numbers)
APART_S = float(apart)
source = random.Random(f"{seed} {WORLD.rank}")

comm = pc.Communicator(WORLD, on_failure="continue", timeout=30)
model = np.full(3 if seed % 2 else 1 << 15, float(comm.rank))
ones = np.ones_like(model)
WORLD.Barrier()  # a death in the constructor is an error
with comm:
    hop = comm.hop(model, topology="ring", mode=mode)
    WORLD.Barrier()
    if comm.rank in victims:
        die_later(source.uniform(0.0, 0.4) * APART_S + APART_S * victims.index(comm.rank))
    pause = 2 * (APART_S * len(victims) + 0.1) / steps
    done = 0
    for ten in range(steps // 10):
        for number in hop.iterations(10):
            assert number == hop.iteration >= done, (number, done)
            time.sleep(source.uniform(0, pause))
            assert (hop.parameters == hop.parameters[0]).all(), hop.parameters
            assert set(dict(hop.received)) <= set(range(comm.size)), hop.received
            hop.step(ones)
            done = number + 1
        assert done == 10 * (ten + 1)
        comm.mean(1.0)
    statistics = hop.statistics()
    assert statistics.iterations + statistics.skipped == steps, statistics
    if "staleness" not in mode:  # updates of later iterations count in it
        assert steps - comm.size <= hop.parameters[0] <= steps + comm.size, hop.parameters
    with comm.hop(model, topology="ring", mode=mode) as another:
        for _ in another.iterations(2):
            another.step(ones)
    survivors = comm.members
say("members:", *survivors)
say("end")
