"""A rank dies, and afterwards MPI_Finalize of the others does not return: it waits in a callback of the program."""

import time

import numpy as np
from common import WORLD, arguments, say
from death import die
from mpi4py import MPI

import pycollectives as pc

arguments()
# MPI_Finalize deletes attributes of MPI_COMM_SELF in the reverse order: this one after that of pycollectives.
keyval = MPI.Comm.Create_keyval(delete_fn=lambda *_: time.sleep(120))
MPI.COMM_SELF.Set_attr(keyval, None)
try:
    with pc.Communicator(WORLD) as comm:
        ar = comm.partial_allreduce(np.ones(1), policy="full")
        ar.allreduce(np.ones(1), timeout=15)
        if comm.rank == 1:
            die()
        ar.allreduce(np.ones(1), timeout=15)
except pc.RankFailedError as error:
    say("died:", *error.ranks)
say("end", time.monotonic())
MPI.Finalize()
say("finalized")
