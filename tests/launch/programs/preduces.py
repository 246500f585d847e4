"""Ranks die one after the other, and the others continue to average in groups that the program names.

preduces.py RANKS LARGEST APART STEPS SEED VICTIM...: all ranks have the same list of groups of 2 to LARGEST ranks.
"""

import random
import time

import numpy as np
from common import WORLD, arguments, say
from death import die_later

import pycollectives as pc

largest, apart, *numbers = arguments()
steps, seed, *victims = map(int, numbers)
APART_S = float(apart)
source = random.Random(f"{seed} {WORLD.rank}")
shared = random.Random(seed)

comm = pc.Communicator(WORLD, on_failure="continue", timeout=30)
count = 2 if seed % 2 else 1 << 15  # by messages, or in shared memory
weights = np.full(count, float(comm.rank))
WORLD.Barrier()  # a death in the constructor is an error
with comm:
    if comm.rank in victims:
        die_later(source.uniform(0.0, 0.4) * APART_S + APART_S * victims.index(comm.rank))
    pause = 2 * (APART_S * len(victims) + 0.1) / steps
    for step in range(steps):
        group = shared.sample(range(comm.size), shared.randint(2, int(largest)))
        time.sleep(source.uniform(0, pause))
        if comm.rank in group:
            comm.preduce(weights, group)
            assert (weights == weights[0]).all(), (step, group, weights)
            assert 0 <= weights[0] < comm.size
    assert comm.mean(comm.rank) == np.mean(comm.members)
    totals = np.full(count, 2.0**comm.rank)
    comm.preduce(totals, range(comm.size), op="SUM")
    assert (totals == sum(2.0**rank for rank in comm.members)).all(), totals[0]
    assert comm.mean(comm.rank) == np.mean(comm.members)
    survivors = comm.members
say("members:", *survivors)
say("end")
