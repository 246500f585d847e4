"""Ranks die one after the other, and the others continue to average: no rank's weights are mixed or lost.

reduces.py RANKS GROUPS APART STEPS SEED VICTIM...: all elements of a rank's weights are equal, before and after each
call. The victims die about APART seconds one after the other.
"""

import random
import time

import numpy as np
from common import WORLD, arguments, say
from death import die_later

import pycollectives as pc

groups, apart, *numbers = arguments()
steps, seed, *victims = map(int, numbers)
APART_S = float(apart)
source = random.Random(f"{seed} {WORLD.rank}")

changes = []
comm = pc.Communicator(WORLD, on_failure="continue", timeout=30)
comm.on_change(changes.append)
count = 2 if seed % 2 else 1 << 15  # by messages, or in shared memory
weights = np.full(count, float(comm.rank))
WORLD.Barrier()  # a death in the constructor is an error
with comm:
    pr = comm.partial_reduce(weights, groups=groups)
    WORLD.Barrier()
    if comm.rank in victims:
        die_later(source.uniform(0.0, 0.4) * APART_S + APART_S * victims.index(comm.rank))
    pause = 2 * (APART_S * len(victims) + 0.1) / steps
    sequences, largest = [], 0
    for step in range(steps):
        time.sleep(source.uniform(0, pause))
        before = comm.members
        info = pr.average(weights, step)
        assert (weights == weights[0]).all(), (step, info, weights)
        assert 0 <= weights[0] < comm.size
        assert comm.rank in info.group
        assert set(info.group) <= set(before), (info, before)
        sequences.append(info.sequence)
        largest = max(largest, len(info.group))
    assert sequences == sorted(sequences), sequences
    statistics = pr.statistics()
    assert statistics.averages == steps, statistics
    pr.leave()
    with comm.partial_reduce(weights, groups=groups) as another:
        another.average(weights)
    assert pr.closed
    assert largest > 1 or len(comm.members) == 1
    assert comm.mean(comm.rank) == np.mean(comm.members)
    survivors = comm.members
assert [change.epoch for change in changes] == list(range(1, len(changes) + 1))
assert set(range(WORLD.size)) - set(survivors) == {rank for change in changes for rank in change.lost}
say("members:", *survivors)
say("end")
