"""Train while ranks die: the survivors continue in the same partial allreduce.

    mpirun --with-ft ulfm --mca async_mpi_finalize 1 -n 4 python examples/continue_after_a_death.py

Needs Open MPI 5. With fewer cores than ranks, add `--oversubscribe`. Rank 1 kills itself after a second; kill any other
rank by its process number, which each rank prints. With `--by-hand` no rank kills itself, and the training is longer.
"""

import os
import signal
import sys
import time

import numpy as np
from mpi4py import MPI

import pycollectives as pc

TRUTH = np.array([1.0, -2.0, 3.0, -4.0])
STEPS = 1000
RATE = 0.1
BATCH = 16


def main():
    """Train with the live ranks."""
    by_hand = "--by-hand" in sys.argv
    with pc.Communicator(MPI.COMM_WORLD, on_failure="continue", timeout=30.0) as comm:
        print(f"rank {comm.rank}: process {os.getpid()}", flush=True)
        if comm.rank == 1 and not by_hand:
            signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
            signal.alarm(1)
        rng = np.random.default_rng([2020, comm.rank])
        weights = np.zeros(4)
        gradients = comm.partial_allreduce(weights, op=pc.AVG, policy="majority")
        for step in range(10 * STEPS if by_hand else STEPS):
            time.sleep(rng.exponential(0.01))
            features = rng.normal(size=(BATCH, 4))
            mean, info = gradients.allreduce(features.T @ (features @ (weights - TRUTH)) / BATCH)
            weights -= RATE * mean
            if info.lost and comm.rank == comm.members[0]:
                print(f"step {step}: lost {info.lost}, members {comm.members}", flush=True)
        if comm.rank == comm.members[0]:
            print(f"largest error of a weight: {np.abs(weights - TRUTH).max():.3f}")


if __name__ == "__main__":
    main()
