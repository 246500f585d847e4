"""What needs a state that a newcomer does not get is refused on all members."""

import numpy as np
import torch
from common import WORLD, arguments, say

import pycollectives as pc
from pycollectives.torch import DecentralizedOptimizer

arguments()
with pc.Communicator(WORLD, on_failure="continue", spares=1, timeout=30.0) as comm:
    refused = []
    for make in (
        lambda: comm.neighbor_averaging(np.zeros(2)),
        lambda: DecentralizedOptimizer(torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=0.1), comm, "d-psgd"),
    ):
        try:
            make()
        except ValueError as error:
            assert "spares" in str(error), error
            refused.append(str(error).partition(":")[0])
    say("refused:", ", ".join(refused))
    say("sum", comm.partial_allreduce(np.zeros(1), policy="full").allreduce(np.ones(1))[0][0])
