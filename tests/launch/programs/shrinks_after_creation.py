"""A rank dies while all make a communicator by MPI, which fails; the others shrink theirs.

shrinks_after_creation.py RANKS PARENT: what the communicator that fails is made of: "world"; "duplicate" of it, as that
of pycollectives is; or "outside", MPI_COMM_WORLD, of which that of pycollectives has only some ranks.
"""

import time

import numpy as np
from common import WORLD, arguments, say
from death import die
from mpi4py import MPI

import pycollectives as pc

(parent,) = arguments()
VICTIM = WORLD.size - 1
given = {"world": WORLD, "duplicate": WORLD.Dup(), "outside": WORLD.Split(int(WORLD.rank > 0))}[parent]
comm = pc.Communicator(given)
fails = given if parent == "duplicate" else WORLD
WORLD.Barrier()
if WORLD.rank == VICTIM:
    time.sleep(0.2)
    die()
try:
    fails.Dup()
except MPI.Exception as error:
    say("no duplicate:", error.Get_error_string())
fails.Revoke()
try:
    survivors = comm.shrink(timeout=10) if comm.size > 1 else comm
except (RuntimeError, pc.StallError) as error:
    say("error:", error)
else:
    with survivors, survivors.partial_allreduce(np.ones(1), policy="full") as ar:
        say("total:", int(ar.allreduce(np.ones(1), timeout=20)[0][0]))
