"""Rank 1 cannot have the memory of a collective, later it can; every rank says what it is told.

little_memory.py RANKS RANKS_PER_NODE
"""

import resource
from pathlib import Path

import numpy as np
from common import WORLD, arguments, say

import pycollectives as pc

MIB = 1 << 20
COUNT = 10**7
(ranks_per_node,) = map(int, arguments())
soft, hard = resource.getrlimit(resource.RLIMIT_AS)
with pc.Communicator(WORLD, ranks_per_node=ranks_per_node, timeout=20) as comm:
    if comm.rank == 1:
        in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (in_use + 300 * MIB, hard))
    try:
        comm.partial_allreduce(count=COUNT, dtype="f8", name="large")
    except RuntimeError as error:
        say(f"{error}")
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    with comm.partial_allreduce(count=COUNT, dtype="f8", policy=pc.Full()) as ar:
        say(f"total {ar.allreduce(np.ones(COUNT), timeout=20)[0][-1]}")
