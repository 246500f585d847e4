"""A rank is killed by SIGKILL before or in an average with neighbors; the others say what they are told, and when.

killed_neighbor.py RANKS CALL VICTIM SEED: CALL is "d-psgd", "push-sum" or "overlap".
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
        w = np.ones(1 << 21, np.float32)
        graph = pc.topology.complete(comm.size)
        if call == "d-psgd":
            average = comm.neighbor_averaging(w, topology=graph)
        else:
            average = comm.push_sum(w, topology=graph, overlap=int(call == "overlap"))
        begin = time.monotonic()
        if comm.rank == victim:
            die_later(random.Random(seed).uniform(0.0, 0.2))
        while time.monotonic() < begin + 20:
            average.average(w, timeout=15)
            if abs(w - 1).max() > 1e-5:
                say(f"wrong result: {np.unique(w)}")
except pc.RankFailedError as error:
    say(f"{time.monotonic() - time_of_death():.2f} s")
    say(f"{error}")
say("end")
