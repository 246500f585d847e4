"""What becomes of P-Reduces that cannot be performed, over MPI."""

from __future__ import annotations

import os
import resource
import time

import numpy as np
import pytest
from mpi4py import MPI
from oracle import LIMIT

import pycollectives as pc

pytestmark = pytest.mark.mpi(min_size=2)

WORLD = MPI.COMM_WORLD
LONG = 1 << 17
"""Elements that members on one node put into shared memory."""


@pytest.mark.parametrize("count", [1, LONG])
def test_a_communicator_can_be_closed_after_a_stall(count):
    """The last rank never calls preduce."""
    with pc.Communicator(WORLD) as comm:
        if comm.rank == 0:
            with pytest.raises(pc.StallError, match=f"rank {comm.size - 1}"):
                comm.preduce(np.ones(count), [0, comm.size - 1], timeout=0.2)
        WORLD.Barrier()


@pytest.mark.parametrize("count", [1, LONG])
def test_a_rank_that_leaves_is_not_waited_for(count):
    with pc.Communicator(WORLD) as comm:
        if comm.rank == comm.size - 1:
            time.sleep(0.2)
        else:
            with pytest.raises(pc.ClosedError, match=f"rank {comm.size - 1} has closed the communicator"):
                comm.preduce(np.ones(count), range(comm.size))


@pytest.mark.parametrize(
    "counts", [(1, 2), (1000, 1001), (LONG, LONG + 1), (LONG - 1, LONG)], ids=["short", "parts", "long", "boundary"]
)
def test_different_counts_are_found_out(counts):
    with pc.Communicator(WORLD) as comm:
        with pytest.raises(pc.MismatchError, match="preduce: "):
            comm.preduce(np.ones(counts[comm.rank % 2]), range(comm.size))
        result, _ = comm.partial_allreduce(np.ones(1), policy=pc.Full()).allreduce(np.ones(1))
        assert result[0] == comm.size


def test_memory_that_one_rank_cannot_open():
    """Rank 0 may open one file more: the one of its own memory."""
    with pc.Communicator(WORLD) as comm:
        if comm.nodes[0] != comm.nodes[1]:
            pytest.skip("needs two ranks on a node")
        WORLD.Barrier()
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        if comm.rank == 0:
            free = os.open("/dev/null", os.O_RDONLY)
            os.close(free)
            resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, limits[1]))
        try:
            if comm.rank < 2:
                text = "Too many open files" if comm.rank == 0 else "rank 0 could not open the memory"
                with pytest.raises(RuntimeError, match=text):
                    comm.preduce(np.ones(LONG), [0, 1], timeout=LIMIT)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        WORLD.Barrier()
