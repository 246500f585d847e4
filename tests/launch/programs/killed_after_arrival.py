"""A rank is killed after it has arrived at a P-Reduce, before any rank has opened its memory.

killed_after_arrival.py RANKS
"""

import os
import time
from pathlib import Path

import numpy as np
from common import WORLD, say
from death import kill_other, time_of_death

import pycollectives as pc

VICTIM = 2

processes = WORLD.allgather(os.getpid())
try:
    with pc.Communicator(WORLD) as comm:
        if comm.rank == 0:  # the last to arrive
            time.sleep(1)
            kill_other(processes[VICTIM])
            while Path(f"/proc/{processes[VICTIM]}/fd/0").exists():
                time.sleep(0.001)
        comm.preduce(np.ones(1 << 18, np.float32), range(comm.size), timeout=15)
except pc.RankFailedError as error:
    say(f"{time.monotonic() - time_of_death():.2f} s")
    say(f"{error}")
say("end")
