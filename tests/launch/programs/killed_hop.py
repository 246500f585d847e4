"""A rank is killed by SIGKILL in an iteration of Hop; the others say what they are told, and when.

killed_hop.py RANKS MODE VICTIM SEED: MODE is one of `MODES`.
"""

import random
import time

import numpy as np
from common import WORLD, arguments, say
from death import die_later, time_of_death

import pycollectives as pc

MODES = {
    "standard": {"mode": "standard"},
    "backup": {"mode": "backup:1"},
    "staleness": {"mode": "staleness:3"},
    "notify-ack": {"mode": "notify-ack"},
    "skip": {"mode": "skip:3"},
    "serial": {"mode": "standard", "computation": "serial"},
}

mode, *numbers = arguments()
victim, seed = map(int, numbers)

try:
    with pc.Communicator(WORLD) as comm:
        w = np.ones(1 << 20, np.float32)
        hop = comm.hop(w, topology=pc.topology.complete(comm.size), max_ig=3, **MODES[mode])
        if comm.rank == victim:
            die_later(random.Random(seed).uniform(0.0, 0.2))
        w[...] = 0
        for _ in hop.iterations(1_000_000, timeout=15):
            hop.step(w, timeout=15)
            if abs(hop.parameters - 1).max() > 1e-5:
                say(f"wrong result: {np.unique(hop.parameters)}")
except pc.RankFailedError as error:
    say(f"{time.monotonic() - time_of_death():.2f} s")
    say(f"{error}")
say("end")
