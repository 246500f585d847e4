"""Continue training after ranks die: the survivors shrink the communicator.

    mpirun --with-ft ulfm --mca async_mpi_finalize 1 -n 4 python examples/after_a_death.py

Needs Open MPI 5. With fewer cores than ranks, add `--oversubscribe`. Rank 1 kills itself after a second; kill any other
rank by its process number, which each rank prints.

All ranks hold about the same weights, so a dead rank loses none. After a death, some survivors may lack rounds that
others have received. They continue from the mean of their weights.
"""

import os
import signal
import time

import numpy as np
from mpi4py import MPI

import pycollectives as pc

TRUTH = np.array([1.0, -2.0, 3.0, -4.0])
STEPS = 300
RATE = 0.1
BATCH = 16


def main():
    """Train, and continue with the survivors whenever a rank dies."""
    comm = pc.Communicator(MPI.COMM_WORLD, timeout=30.0)
    print(f"rank {comm.rank}: process {os.getpid()}", flush=True)
    if comm.rank == 1:
        signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        signal.alarm(1)
    rng = np.random.default_rng([2020, comm.rank])
    weights = np.zeros(4)
    step = 0
    while True:
        try:
            weights[:] = comm.mean(weights)  # survivors of a death may differ by some rounds
            gradients = comm.partial_allreduce(weights, op=pc.AVG, policy="majority")
            while step < STEPS:
                time.sleep(rng.exponential(0.01))
                features = rng.normal(size=(BATCH, 4))
                mean, _ = gradients.allreduce(features.T @ (features @ (weights - TRUTH)) / BATCH)
                weights -= RATE * mean
                step += 1
            comm.close()  # flushes and closes the partial allreduce, too
            break
        except pc.RankFailedError as error:
            comm = comm.shrink()
            if comm.rank == 0:
                print(f"{error}", flush=True)
                print(f"{comm.size} ranks continue from step {step}", flush=True)
    if comm.rank == 0:
        print(f"largest error of a weight: {np.abs(weights - TRUTH).max():.3f}")


if __name__ == "__main__":
    main()
