"""Decentralized training in which each rank averages its weights with small, changing groups of ranks (Ripples).

    mpirun -n 4 python examples/group_averaging.py

With fewer cores than ranks, Open MPI needs `mpirun --oversubscribe`.

Each rank's data lacks one of the features, so no rank can find all weights by itself. After each step, a rank asks for
a group and averages its weights with the members of that group. It waits only for these members. The groups overlap
over time, so the weights of each rank reach all others.
"""

import time

import numpy as np
from mpi4py import MPI

import pycollectives as pc

TRUTH = np.array([1.0, -2.0, 3.0, -4.0])
STEPS = 200
RATE = 0.1
BATCH = 16


def main():
    """Train in groups, and compare the mean of all ranks' weights with the truth."""
    weights = np.zeros(4)
    others = set()
    with pc.Communicator(MPI.COMM_WORLD, timeout=30.0) as comm:
        rng = np.random.default_rng([2019, comm.rank])
        with comm.partial_reduce(weights, groups=pc.groups.SmartGroups(size=2)) as averaging:
            for _ in range(STEPS):
                time.sleep(rng.exponential(0.003))
                features = rng.normal(size=(BATCH, 4))
                features[:, comm.rank % 4] = 0.0  # this rank never sees this feature
                weights -= RATE * features.T @ (features @ (weights - TRUTH)) / BATCH
                info = averaging.average(weights)  # replaces `weights` by the mean of the group
                others.update(info.group)

        # The partial reduce is closed here. Before that, no call that waits for all ranks is allowed.
        error = np.abs(weights - TRUTH).max()
        errors = MPI.COMM_WORLD.gather(error)
        mean = comm.mean(weights)
        met = comm.mean(len(others))
        if comm.rank == 0:
            print(f"{comm.size} ranks, {STEPS} steps each: {mean.round(2)}")
            print(f"largest error of a rank {max(errors):.1e}; a rank was in groups with {met - 1:.1f} others")


if __name__ == "__main__":
    main()
