"""Allreduces of 1 MB by all ranks; rank 0 says how many seconds they took: rounds_per_second.py ROUNDS."""

import sys
import time

import numpy as np
from mpi4py import MPI

import pycollectives as pc

with pc.Communicator(MPI.COMM_WORLD) as comm:
    with comm.partial_allreduce(count=250_000, dtype="f4", policy=pc.Full(), algorithm="ring") as ar:
        x = np.full(250_000, comm.rank, np.float32)
        ar.allreduce(x, timeout=20)
        begin = time.monotonic()
        for _ in range(int(sys.argv[1])):
            result, _ = ar.allreduce(x, timeout=20)
            assert (result == sum(range(comm.size))).all()
        spent = time.monotonic() - begin
    if comm.rank == 0:
        print(f"rank 0: {spent}", flush=True)
