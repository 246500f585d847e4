"""A few rounds, for PYC_TRACE."""

import numpy as np
from common import WORLD, arguments, say

import pycollectives as pc

arguments()
with pc.Communicator(WORLD) as comm:
    ar = comm.partial_allreduce(count=10_000, dtype="f4", policy=pc.Full(), algorithm="ring", name="a name")
    for _ in range(3):
        ar.allreduce(np.ones(10_000, "f4"), timeout=30)
say("end")
