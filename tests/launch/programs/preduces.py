"""Ranks die one after the other, and the others continue to reduce in groups that the program names.

preduces.py RANKS LARGEST APART STEPS SEED VICTIM...: all ranks have the same list of groups of 2 to LARGEST ranks. If
LARGEST is "same", there are 20 times as many, of all ranks. In each, rank r gives 1 in element r. All survivors of a
group receive the same sum, with a 1 of each of them.
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
is_same = largest == "same"
steps *= 20 if is_same else 1

comm = pc.Communicator(WORLD, on_failure="continue", timeout=30)
repeated = 1 if seed % 2 else 1 << 14  # by messages, or in shared memory
results = np.zeros(steps)  # of each group, as a number; 0 if this rank is no member
WORLD.Barrier()  # a death in the constructor is an error
with comm:
    if comm.rank in victims:
        die_later(source.uniform(0.0, 0.4) * APART_S + APART_S * victims.index(comm.rank))
    pause = APART_S * len(victims) / steps
    for step in range(steps):
        group = range(comm.size) if is_same else shared.sample(range(comm.size), shared.randint(2, int(largest)))
        time.sleep(source.uniform(0, pause))
        if comm.rank in group:
            ones = np.zeros((repeated, comm.size))
            ones[:, comm.rank] = 1
            comm.preduce(ones, group, op="SUM")
            assert (ones == ones[0]).all(), (step, group)
            assert set(np.flatnonzero(ones[0])) <= set(group), (step, group, ones[0])
            assert ones[0, comm.rank] == 1, (step, group, ones[0])
            assert ones[0].max() == 1, (step, group, ones[0])
            results[step] = ones[0] @ 2.0 ** np.arange(comm.size)
    survivors = comm.members
    moments = comm.mean(np.array([results > 0, results, results**2])) * len(survivors)
    count, total, squares = moments.round()
    assert (count * squares == total**2).all(), (results, moments)  # all members have the same
    assert len(survivors) == len(comm.members)
    totals = np.full(repeated, 2.0**comm.rank)
    comm.preduce(totals, range(comm.size), op="SUM")
    assert (totals == sum(2.0**rank for rank in survivors)).all(), totals[0]
    assert comm.mean(comm.rank) == np.mean(survivors)
say("members:", *survivors)
say("end")
