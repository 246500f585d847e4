"""Ranks die one after the other, and the others continue to average with their neighbors, in the same steps.

averages.py RANKS SERVICE TOPOLOGY APART STEPS SEED VICTIM...: after every tenth step all ranks wait for each other. The
victims die about APART seconds one after the other.
"""

import random
import time

import numpy as np
from common import WORLD, arguments, say
from death import die_later

import pycollectives as pc

service, graph, apart, *numbers = arguments()
steps, seed, *victims = map(int, numbers)
APART_S = float(apart)
source = random.Random(f"{seed} {WORLD.rank}")

comm = pc.Communicator(WORLD, on_failure="continue", timeout=30)
model = np.full(2 if seed % 2 else 1 << 15, float(comm.rank))  # by messages, or in shared memory
WORLD.Barrier()  # a death in the constructor is an error
with comm:
    averaging = getattr(comm, service)(model, topology=graph)
    WORLD.Barrier()
    if comm.rank in victims:
        die_later(source.uniform(0.0, 0.4) * APART_S + APART_S * victims.index(comm.rank))
    pause = 2 * (APART_S * len(victims) + 0.1) / steps
    for step in range(steps):
        time.sleep(source.uniform(0, pause))
        if source.random() < 0.5:
            info = averaging.average(model)
        else:
            request = averaging.start(model)
            while source.random() < 0.5 and not request.test():
                pass
            info = request.wait()
            model[:] = averaging.result
        assert (info.step, averaging.steps) == (step, step + 1), info
        assert (model == model[0]).all(), (step, model)
        assert -1e-9 <= model[0] <= comm.size - 1 + 1e-9, (step, model)
        if step % 10 == 9:
            assert comm.mean(step) == step
    survivors = comm.members
    if service == "neighbor_averaging":
        assert (averaging.final() == model).all()
    assert averaging.statistics().steps == steps
    with getattr(comm, service)(model, topology=graph) as another:
        another.average(model)
say("members:", *survivors)
say("end")
