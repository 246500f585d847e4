"""MPI.Finalize, with the collective open, on the rank whose server calls a function of Python."""

import numpy as np
from common import WORLD, say
from mpi4py import MPI

import pycollectives as pc


def update(weights, gradient):
    weights -= gradient


comm = pc.Communicator(WORLD, ranks_per_node=1)
ps = comm.parameter_server(np.zeros(3), sync="asp", update=update, servers=1)
weights = np.zeros(3)
WORLD.Barrier()
if comm.rank == 0:
    MPI.Finalize()
    print("rank 0: finalized", flush=True)
else:
    for _ in range(3):
        ps.push_pull(np.ones(3), weights, timeout=30)
    say("weights", *weights)
    comm.close(timeout=30)
