"""All ranks average until they have done ROUNDS, or are told that others died; rank 2 is stopped for STOPPED seconds,
and then rank 1 computes for as long.

silent.py FOLDER ROUNDS STOPPED: after the first round "begun" is in the folder, and "told-R" when rank R has been told.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

import pycollectives as pc

folder, rounds, stopped = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
rank = MPI.COMM_WORLD.rank


def compute(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


try:
    with pc.Communicator(MPI.COMM_WORLD) as comm:
        ar = comm.partial_allreduce(count=1000, dtype="f4", policy=pc.Full())
        for number in range(rounds):
            result, _ = ar.allreduce(np.ones(1000, np.float32))
            if not (result == comm.size).all():
                raise AssertionError(result)
            if number == 0 and rank == 0:
                (folder / "begun").touch()
            if number == 0 and rank == 2 and stopped > 0:
                subprocess.Popen(["sh", "-c", f"kill -STOP {os.getpid()}; sleep {stopped}; kill -CONT {os.getpid()}"])
            if number == 1 and rank == 1 and stopped > 0:
                compute(stopped)
            time.sleep(0.01)
    print(f"rank {rank}: right", flush=True)
except pc.RankFailedError as error:
    print(f"rank {rank}: {list(error.ranks)} {error}", flush=True)
    (folder / f"told-{rank}").touch()
print(f"rank {rank}: end", flush=True)
