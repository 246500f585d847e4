"""Stop and resume a training: flush first, then write the checkpoint.

    mpirun -n 4 python examples/checkpoint_resume.py --until 30 --file run.npz
    mpirun -n 4 python examples/checkpoint_resume.py --until 60 --file run.npz

The second command continues where the first stopped. It prints the same digest of the weights, bit for bit, as a run
without a stop:

    mpirun -n 4 python examples/checkpoint_resume.py --until 60 --file other.npz

With fewer cores than ranks, Open MPI needs `mpirun --oversubscribe`.

Two choices make the runs equal. With `--policy full`, the default, rounds do not depend on timing. The gradients are
integers, whose sum does not depend on the order. With another policy, no two runs are equal, stopped or not. With every
policy, each gradient is applied exactly once. The program counts them.
"""

import argparse
import hashlib
import os
import sys
import time

import numpy as np
from mpi4py import MPI

import pycollectives as pc

TRUTH = np.array([1.0, -2.0, 3.0])
EVERY = 10
RATE = 0.2
UNIT = 2.0**-40  # gradients are multiples of it, contributed as integers


def load(file):
    """Return the newest checkpoint, or None."""
    if not os.path.exists(file):
        return None
    with np.load(file) as state:
        return {name: state[name] for name in state}


def save(file, **state):
    """Write a checkpoint; after a crash, the file is the new one or the previous one."""
    with open(f"{file}.new", "wb") as stream:
        np.savez(stream, **state)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(f"{file}.new", file)


def main():
    """Train from the newest checkpoint, or from the beginning."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--until", type=int, default=60, help="the step to stop at")
    parser.add_argument("--policy", default="full")
    parser.add_argument("--file", default="checkpoint.npz")
    options = parser.parse_args()

    with pc.Communicator(MPI.COMM_WORLD, timeout=30.0) as comm:
        state = comm.mpi_comm.bcast(load(options.file) if comm.rank == 0 else None)  # only rank 0 needs the file
        state = state or {"ranks": comm.size, "step": 0, "total": np.zeros(4, dtype=np.int64)}
        if state["ranks"] != comm.size:
            sys.exit(f"{options.file} was written by {state['ranks']} ranks, not {comm.size}" if comm.rank == 0 else 1)
        start, total = int(state["step"]), state["total"]  # the sum of all gradients; the last element is their number

        gradients = comm.partial_allreduce(total, policy=options.policy)
        for step in range(start, options.until):
            rng = np.random.default_rng(
                [1, comm.rank, step]
            )  # data depends only on rank and step, with no state to save
            time.sleep(0.001 * rng.exponential())
            weights = -RATE * UNIT * total[:3] / comm.size
            features = rng.normal(size=(16, 3))
            gradient = features.T @ (features @ (weights - TRUTH)) / len(features)
            gradients.contribute(np.append(np.rint(gradient / UNIT), 1).astype(np.int64)).wait()
            total = total + gradients.result
            if (step + 1) % EVERY == 0 or step + 1 == options.until:
                gradients.flush()  # late and missed gradients belong in the checkpoint
                total = total + gradients.result
                if comm.rank == 0:
                    save(options.file, ranks=comm.size, step=step + 1, total=total)

        weights = -RATE * UNIT * total[:3] / comm.size
        if comm.rank == 0:
            digest = hashlib.sha256(total.tobytes()).hexdigest()[:16]
            print(
                f"steps {start} to {options.until}: weights {weights.round(3)}, {total[3]} gradients, digest {digest}"
            )


if __name__ == "__main__":
    main()
