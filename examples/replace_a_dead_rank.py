r"""Train while ranks die: a spare rank takes the place of a dead one, with the model of a survivor.

    mpirun --with-ft ulfm --mca async_mpi_finalize 1 -n 5 python examples/replace_a_dead_rank.py

Needs Open MPI 5. With fewer cores than ranks, add `--oversubscribe`. Four ranks train, and the fifth waits. Rank 1
kills itself after a second. You can kill another rank by its process number, which each rank prints.

With `--respawn` no rank waits. The survivors start a new process instead:

    mpirun --with-ft ulfm --mca async_mpi_finalize 1 --prtemca state_base_recoverable 1 --oversubscribe -n 4 \
        python examples/replace_a_dead_rank.py --respawn
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
    """Train with four ranks, and replace those that die."""
    replaced_by = {"respawn": True} if "--respawn" in sys.argv else {"spares": 1}
    with pc.Communicator(MPI.COMM_WORLD, on_failure="continue", timeout=30.0, **replaced_by) as comm:
        weights, step = np.zeros(4), 0
        gradients = comm.partial_allreduce(weights, op=pc.AVG, policy="majority")

        def provide():
            return step, weights

        def restore(state):
            nonlocal step
            step, weights[:] = state

        comm.state(provide, restore)
        print(f"rank {comm.rank}: process {os.getpid()}, from step {step}", flush=True)
        if comm.rank == 1 and step == 0:
            signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
            signal.alarm(1)
        rng = np.random.default_rng([2020, comm.rank, comm.epoch])
        while step < STEPS:
            time.sleep(rng.exponential(0.01))
            features = rng.normal(size=(BATCH, 4))
            mean, info = gradients.allreduce(features.T @ (features @ (weights - TRUTH)) / BATCH)
            weights -= RATE * mean
            step += 1
            if info.lost and comm.rank == comm.members[0]:
                print(f"step {step}: lost {info.lost}, members {comm.members}", flush=True)
        if comm.rank == comm.members[0]:
            print(f"largest error of a weight: {np.abs(weights - TRUTH).max():.3f}")


if __name__ == "__main__":
    main()
