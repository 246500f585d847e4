"""Two ranks die one after the other; the others say whom each error of their calls names."""

import os
import signal
import time

import numpy as np
from common import WORLD, arguments, say

import pycollectives as pc

arguments()
with pc.Communicator(WORLD) as comm:
    ar = comm.partial_allreduce(np.zeros(100), policy="full")
    WORLD.Barrier()
    begin = time.monotonic()
    dies_after = {1: 0.5, 3: 2.0}.get(comm.rank, 60.0)
    named = set()
    while time.monotonic() - begin < 6.0:
        if time.monotonic() - begin > dies_after:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            ar.contribute(np.ones(100)).wait(timeout=0.5)
        except pc.RankFailedError as error:
            named |= set(error.ranks)
            time.sleep(0.1)
        except pc.StallError:
            pass
    say("named:", *sorted(named))
    time.sleep(2.0)  # who ends here is no rank that died
    os._exit(0)
