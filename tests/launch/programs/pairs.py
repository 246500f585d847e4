"""Ranks die one after the other, and the others average pairwise: each applied delta counts once, and models are whole.

pairs.py RANKS TOPOLOGY APART STEPS SEED VICTIM...: all elements of a rank's model are equal whenever it reads them.
"""

import random
import time
from os import environ

import numpy as np
from common import WORLD, arguments, say
from death import die_later

import pycollectives as pc

graph, apart, *numbers = arguments()
steps, seed, *victims = map(int, numbers)
APART_S = float(apart)
source = random.Random(f"{seed} {WORLD.rank}")

comm = pc.Communicator(WORLD, on_failure="continue", timeout=30)
count = 3 if seed % 2 else 1 << 12  # a model is one segment
WORLD.Barrier()  # a death in the constructor is an error
with comm:
    model = comm.pairwise_averaging(np.zeros(count), topology=graph)
    WORLD.Barrier()
    if comm.rank in victims:
        die_later(source.uniform(0.0, 0.4) * APART_S + APART_S * victims.index(comm.rank))
    pause = 2 * (APART_S * len(victims) + 0.1) / steps
    for step in range(steps):
        time.sleep(source.uniform(0, pause))
        model.apply(np.ones(count))
        weights = model.read()
        assert (weights == weights[0]).all(), (step, weights)
        assert 0 <= weights[0] <= (step + 5) * 1.5, (step, weights)
        if step % 10 == 9:
            mean = model.equalize()
            assert (mean == mean[0]).all(), mean
            assert comm.is_same_on_all_ranks(mean)
    survivors = comm.members
    assert model.statistics().applied == steps
    mean = model.equalize()
    # Of one average and each death, a part may be lost. A rank that prints its stack before it dies takes part in
    # averages and applies nothing.
    lost = 3 if environ.get("DEATH_BY", "SIGKILL") == "SIGKILL" else 3 + 3 * len(victims)
    assert abs(mean[0] - steps) < lost, mean
    assert (model.read() == mean).all()
    with comm.pairwise_averaging(np.zeros(count), topology=graph) as another:
        another.apply(np.ones(count))
        assert (another.equalize() == 1).all()
say("members:", *survivors)
say("end")
