"""A few iterations of Hop, for PYC_TRACE."""

import time

import numpy as np
from common import WORLD, say

import pycollectives as pc

with pc.Communicator(WORLD) as comm, comm.hop(like=np.ones(4), topology="ring") as hop:
    for _ in hop.iterations(3, timeout=30):
        time.sleep(2e-3)
        hop.step(np.zeros(4))
say("end")
