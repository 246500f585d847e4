"""A rank is killed by SIGKILL while all push to a parameter server; the others say what they are told, and when.

killed_server.py RANKS SERVERS SYNC VICTIM SEED: SERVERS is "node", or how many serve; all ranks are workers.
"""

import random
import time

import numpy as np
from common import WORLD, arguments, say
from death import die_later, time_of_death

import pycollectives as pc

servers, sync, *numbers = arguments()
victim, seed = map(int, numbers)

try:
    with pc.Communicator(WORLD) as comm:
        w = np.zeros(1 << 20, np.float32)
        ps = comm.parameter_server(
            like=w,
            sync=sync,
            update=pc.SGD(1.0),
            servers=servers if servers == "node" else int(servers),
            workers=range(comm.size),
        )
        if comm.rank == victim:
            die_later(random.Random(seed).uniform(0.0, 0.2))
        gradient = np.ones_like(w)
        while True:
            ps.push_pull(gradient, w, timeout=15)
            if np.ptp(w) != 0 and len(ps.servers) <= 1:
                say(f"wrong result: {np.unique(w)}")
except pc.RankFailedError as error:
    say(f"{time.monotonic() - time_of_death():.2f} s")
    say(f"{error}")
say("end")
