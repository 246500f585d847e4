"""A rank is killed by SIGKILL before or in an average in groups; the others say what they are told, and when.

killed_in_group.py RANKS CALL VICTIM SEED: CALL is "sync" or "preduce".
"""

import random
import time

import numpy as np
from common import WORLD, arguments, say
from death import die_later, time_of_death

import pycollectives as pc

call, *numbers = arguments()
victim, seed = map(int, numbers)


try:
    with pc.Communicator(WORLD) as comm:
        weights = np.ones(1 << 21, np.float32)
        pr = comm.partial_reduce(weights, groups=pc.groups.StaticGroups(comm.size))
        for _ in range(2):  # all have met
            comm.preduce(weights, range(comm.size), timeout=30)
        begin = time.monotonic()
        if comm.rank == victim:
            die_later(random.Random(seed).uniform(0.0, 0.2))
        while time.monotonic() < begin + 20:
            if call == "sync":
                pr.average(weights, timeout=15)
            else:
                comm.preduce(weights, range(comm.size), timeout=15)
            if not (weights == 1).all():
                say(f"wrong result: {np.unique(weights)}")
except pc.RankFailedError as error:
    say(f"{time.monotonic() - time_of_death():.2f} s")
    say(f"{error}")
say("end")
