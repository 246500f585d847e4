"""A few rounds, for PYC_TRACE.

traced.py RANKS [ALGORITHM]; with one, ranks exchange messages.
"""

import numpy as np
from common import WORLD, arguments, say

import pycollectives as pc

algorithm = (arguments() or ["auto"])[0]
with pc.Communicator(WORLD) as comm:
    ar = comm.partial_allreduce(count=10_000, dtype="f4", policy=pc.Full(), algorithm=algorithm, name="a name")
    for _ in range(3):
        ar.allreduce(np.ones(10_000, "f4"), timeout=30)
say("end")
