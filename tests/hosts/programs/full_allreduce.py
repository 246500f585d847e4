"""Allreduces of all ranks by every algorithm: short, and longer than what Open MPI sends at once.

Shapes: 2x4, 2x1, 4x1 at 100mbit.
"""

import numpy as np
from mpi4py import MPI

import pycollectives as pc
from pycollectives.support.native import core

with pc.Communicator(MPI.COMM_WORLD) as comm:
    assert max(comm.nodes) > 0, comm.nodes
    for algorithm in [each["name"] for each in core.algorithms()]:
        for count in (7, 250_000):
            with comm.partial_allreduce(count=count, dtype="f4", policy=pc.Full(), algorithm=algorithm) as ar:
                for step in range(3):
                    x = np.arange(count, dtype=np.float32) % 11 + comm.rank + step
                    result, info = ar.allreduce(x, timeout=20)
                    expected = comm.size * (np.arange(count) % 11 + step) + sum(range(comm.size))
                    np.testing.assert_array_equal(result, expected, f"{algorithm}, {count} elements, {info}")
    print(f"rank {comm.rank}: right\n", end="", flush=True)
