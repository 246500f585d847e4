"""Try an installed pycollectives: a few rounds, whose sum is right.

mpirun -n RANKS python tools/smoke.py RANKS
"""

import sys

import numpy as np
from mpi4py import MPI

import pycollectives as pc
from pycollectives._version import commit

ROUNDS = 10

assert str(MPI.COMM_WORLD.size) == sys.argv[1], "the launcher belongs to another MPI"
with pc.Communicator(MPI.COMM_WORLD, timeout=30.0) as comm:
    ar = comm.partial_allreduce(np.zeros(4), op=MPI.SUM)
    total = np.zeros(4)
    for _ in range(ROUNDS):
        ar.contribute(np.ones(4)).wait()
        total += ar.result
    ar.flush()
    total += ar.result
    assert (total == ROUNDS * comm.size).all(), total
    assert ar.rounds >= ROUNDS
    if comm.rank == 0:
        library = MPI.Get_library_version().split(",")[0].splitlines()[0]
        print(f"pycollectives {pc.__version__}, commit {commit}, {library}: {total}")
