"""Linear regression on several ranks whose steps differ in length: a first program.

    mpirun -n 4 python examples/linear_regression.py

With fewer cores than ranks, Open MPI needs `mpirun --oversubscribe`.

Each rank computes gradients on its own data and contributes them to a partial allreduce. A round waits for half of the
ranks, not for all. A late gradient goes into the next round, and a late rank receives all rounds that it missed. All
ranks therefore apply the same gradients, and after `flush` they have the same weights.
"""

import time

import numpy as np
from mpi4py import MPI

import pycollectives as pc

TRUTH = np.array([1.0, -2.0, 3.0])
STEPS = 100
RATE = 0.1
BATCH = 16


def main():
    """Train, and compare the weights of all ranks with the truth."""
    weights = np.zeros(3)
    with pc.Communicator(MPI.COMM_WORLD) as comm:
        rng = np.random.default_rng([2020, comm.rank])  # each rank has its own data
        seconds = 0.008 if comm.rank == 0 else 0.002  # rank 0 is slow, and all steps are uneven
        gradients = comm.partial_allreduce(weights)

        for _ in range(STEPS):
            time.sleep(rng.exponential(seconds))
            features = rng.normal(size=(BATCH, 3))
            targets = features @ TRUTH
            gradient = features.T @ (features @ weights - targets) / BATCH
            gradients.contribute(gradient).wait(timeout=30.0)
            weights -= RATE * gradients.result / comm.size

        gradients.flush(timeout=30.0)  # collective: delivers the pending gradients
        weights -= RATE * gradients.result / comm.size

        replicas = MPI.COMM_WORLD.gather(weights)  # allowed, since after the flush no rank waits for this one
        if comm.rank == 0:
            error = np.abs(np.subtract(replicas, TRUTH)).max()
            spread = np.ptp(replicas, axis=0).max()
            print(f"{comm.size} ranks, {STEPS} steps each, {gradients.rounds} rounds: {weights.round(3)}")
            print(f"largest error of a rank {error:.1e}, largest difference between ranks {spread:.1e}")


if __name__ == "__main__":
    main()
