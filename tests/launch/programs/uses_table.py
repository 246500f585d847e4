"""What "auto" means on each rank, which may have a table of its own: table.json, or table.R.json of rank R."""

import os

import numpy as np
from common import WORLD, arguments, say

import pycollectives as pc

(nbytes, *own) = arguments()
if own and WORLD.rank == int(own[0]):
    os.environ["PYC_SELECTION"] = own[1]
for ranks_per_node in (1, WORLD.size):
    try:
        with pc.Communicator(WORLD, ranks_per_node=ranks_per_node, timeout=8) as comm:
            ar = comm.partial_allreduce(count=int(nbytes) // 8, dtype="f8", policy=pc.Full())
            result, _ = ar.allreduce(np.ones(ar.count), timeout=8)
            say(ar.algorithm, result[0])
    except pc.MismatchError as error:
        say(f"MismatchError: {error}")
