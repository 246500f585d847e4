"""A few iterations of Hop, for PYC_TRACE. Rank 2 comes to the last one when rank 0 has waited for it there."""

import sys
import time

import numpy as np
from common import WORLD, say

import pycollectives as pc

ZERO = np.zeros(4)

with pc.Communicator(WORLD) as comm, comm.hop(np.ones(4), topology="ring") as hop:
    for k in hop.iterations(3, timeout=30):
        time.sleep(2e-3)
        if (comm.rank, k) == (2, 1):
            WORLD.recv(source=0)
        if (comm.rank, k) == (0, 2):
            try:
                hop.step(ZERO, timeout=0.1)
                sys.exit("expected a StallError: rank 2 has not sent the update of iteration 2")
            except pc.StallError as error:
                say(error)
            WORLD.send(None, 2)
        hop.step(ZERO, timeout=30)
say("end")
