"""A rank dies while all average in groups; the values of the others are theirs, or an average, but no partial sum.

averages_whole.py RANKS SECONDS
"""

import numpy as np
from common import WORLD, arguments, say
from death import die_later

import pycollectives as pc

(seconds,) = arguments()
values = np.ones(1 << 19)
comm = pc.Communicator(WORLD)
with comm.partial_reduce(values, groups="random:3") as pr:
    if WORLD.rank == WORLD.size - 1:
        die_later(float(seconds))
    try:
        while True:
            pr.average(values, timeout=20)
    except pc.RankFailedError:
        say("whole:", bool((values == 1.0).all()))
    comm.abort()
