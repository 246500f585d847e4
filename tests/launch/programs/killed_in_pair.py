"""A rank is killed by SIGKILL while models are averaged in pairs; its neighbors say so, and all others go on.

killed_in_pair.py RANKS VICTIM SEED
"""

import random
import time

import numpy as np
from common import WORLD, arguments, say
from death import die_later, time_of_death

import pycollectives as pc

victim, seed = map(int, arguments())

try:
    with pc.Communicator(WORLD) as comm:
        model = comm.pairwise_averaging(np.zeros(1 << 18, np.float32), topology="ring")
        delta = np.ones(1 << 18, np.float32)
        comm.mean(0.0)  # all have made it
        if comm.rank == victim:
            die_later(0.5 + random.Random(seed).uniform(0.0, 0.1))
        steps = 0
        end = time.monotonic() + 4
        while time.monotonic() < end:
            try:
                model.apply(delta)
                steps += 1
            except pc.RankFailedError as error:
                say(f"{time.monotonic() - time_of_death():.2f} s")
                say(f"{error.ranks} {error}")
            time.sleep(0.005)
        say(f"steps {steps}")
        say(f"finite {np.isfinite(model.read()).all()}")
        say(f"exchanges {model.statistics().exchanges}")
        model.leave()
except pc.RankFailedError:
    say("end")
