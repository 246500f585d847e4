"""What needs a state that a newcomer does not get is refused on all members."""

import numpy as np
from common import WORLD, arguments, say

import pycollectives as pc

arguments()
with pc.Communicator(WORLD, on_failure="continue", spares=1, timeout=30.0) as comm:
    try:
        comm.neighbor_averaging(np.zeros(2))
    except ValueError as error:
        assert "spares" in str(error), error
        say("refused:", str(error).partition(":")[0])
    say("sum", comm.partial_allreduce(np.zeros(1), policy="full").allreduce(np.ones(1))[0][0])
