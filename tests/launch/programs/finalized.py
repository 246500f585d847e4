"""MPI.Finalize before close: by all ranks, or by one while the others are at work."""

import numpy as np
from common import WORLD, arguments, say
from mpi4py import MPI

import pycollectives as pc

(who,) = arguments()
rank = WORLD.rank
comm = pc.Communicator(WORLD)
ar = comm.partial_allreduce(count=1, dtype="int64", missed="sum", name="gradients")
handle = ar.contribute(np.ones(1, np.int64))
handle.wait(timeout=30)
total = int(ar.result[0])
if who == "all" or rank == 1:
    MPI.Finalize()
    for name, call in (
        ("contribute", lambda: ar.contribute(np.ones(1, np.int64))),
        ("flush", lambda: ar.flush(timeout=5)),
        ("create", lambda: comm.partial_allreduce(count=1, dtype="f8")),
        ("close", comm.close),
    ):
        try:
            call()
            print(f"rank {rank}: {name}: fine", flush=True)
        except Exception as error:
            print(f"rank {rank}: {name}: {type(error).__name__}: {error}", flush=True)
else:
    for _ in range(20):
        ar.allreduce(np.ones(1, np.int64), timeout=30)
    comm.close(timeout=30)
    say("closed")
