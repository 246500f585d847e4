"""Ranks die one after the other, and the others continue with a counter: no two survivors get the same number.

counts.py RANKS START APART STEPS SEED VICTIM...
"""

import random
import time

import numpy as np
from common import WORLD, arguments, say
from death import die_later

import pycollectives as pc

start, apart, *numbers = arguments()
steps, seed, *victims = map(int, numbers)
APART_S, MOST = float(apart), 3
source = random.Random(f"{seed} {WORLD.rank}")

comm = pc.Communicator(WORLD, on_failure="continue", timeout=30)
taken = np.zeros(steps * MOST * comm.size)
WORLD.Barrier()  # a death in the constructor is an error

with comm:
    counter = comm.counter(int(start))
    WORLD.Barrier()
    if comm.rank in victims:
        die_later(source.uniform(0.0, 0.4) * APART_S + APART_S * victims.index(comm.rank))
    pause = 2 * (APART_S * len(victims) + 0.1) / steps
    for _ in range(steps):
        begin = time.monotonic()
        wait = source.uniform(0, pause)
        while time.monotonic() < begin + wait:
            counter.read()  # so that some deaths come in a call
        n = source.randrange(MOST + 1)
        first = counter.fetch_add(n) - int(start)
        taken[first : first + n] += 1
    of_all = comm.mean(taken) * len(comm.members)
    value = counter.read() - int(start)
    assert (of_all[:value] <= 1).all(), of_all
    assert (of_all[value:] == 0).all(), (value, of_all)
    left_out = int((of_all[:value] == 0).sum())
    assert left_out <= MOST * steps * len(victims), (left_out, of_all)
    assert victims or left_out == 0, of_all
    comm.mean(1.0)
    counter.flush()
say("members:", *comm.members)
say("end")
