"""A program with the spares of its batch script: rank 1 dies, and a spare replaces it.

spare.py FOLDER    At the end, rank 0 writes FOLDER/result.json.
"""

import json
import os
import signal
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

import pycollectives as pc

spares = int(os.environ.get("PYC_SPARES", 0))
lost: list[int] = []
hosts = MPI.COMM_WORLD.allgather(MPI.Get_processor_name())
with pc.Communicator(MPI.COMM_WORLD, on_failure="continue", spares=spares, timeout=60.0) as comm:
    comm.on_change(lambda change: lost.extend(change.lost))
    sums = comm.partial_allreduce(np.zeros(1), op="SUM", policy="full")
    comm.state(lambda: None, lambda state: None)
    if comm.rank == 1 and comm.epoch == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    result, _ = sums.allreduce(np.ones(1))
    assert result[0] == comm.size, result
    if comm.rank == 0:
        found = {"members": comm.members, "lost": lost, "hosts": hosts}
        (Path(sys.argv[1]) / "result.json").write_text(json.dumps(found))
