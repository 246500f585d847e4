"""Payloads beyond what one MPI message can count (promise 9): nightly, on two ranks, with 16 GiB of memory."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from oracle import LIMIT

import pycollectives as pc

WORLD = MPI.COMM_WORLD
GIB = 2**30


def available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def test_eight_mebibytes_in_partial_rounds():
    count = 2**20 + 3
    with pc.Communicator(WORLD) as comm:
        ar = comm.partial_allreduce(count=count, dtype="int64", missed="sum", policy=pc.Solo())
        total = np.zeros(count, np.int64)
        x = np.arange(count)
        for _ in range(3):
            total += ar.allreduce(x, timeout=LIMIT)[0]
        ar.flush(timeout=LIMIT)
        total += ar.result
        np.testing.assert_array_equal(total, 3 * comm.size * x)


@pytest.mark.nightly
@pytest.mark.timeout(500)
@pytest.mark.skipif(WORLD.size != 2, reason="memory for two ranks")
@pytest.mark.skipif(os.environ.get("PYC_RANKS_PER_NODE", "1") != "1", reason="ranks of one node send no messages")
@pytest.mark.parametrize("algorithm", ["recursive_doubling", "ring"])
@pytest.mark.parametrize("both", [False, True], ids=["one contributes", "both contribute"])
def test_more_than_2_31_bytes(algorithm, both):
    """Per message with recursive doubling; per contribution with ring. Elements beyond 2**31 are checked."""
    enough = min(WORLD.allgather(available_bytes())) > 16 * GIB
    if not enough:
        pytest.skip("needs 16 GiB of free memory")
    count = 2**31 + 4099
    with pc.Communicator(WORLD) as comm:
        policy = pc.Full() if both else pc.Solo()
        ar = comm.partial_allreduce(count=count, dtype="uint8", policy=policy, algorithm=algorithm)
        if comm.rank == 0 or both:
            x = np.zeros(count, np.uint8)
            places = [0, 1, 2**30 - 1, 2**30, 2**31 - 1, 2**31, count - 1]
            x[places] = np.arange(1, 8) * (1 + comm.rank)
            result, info = ar.allreduce(x, timeout=400)
            factor = 3 if both else 1
            assert info.contributors == ((0, 1) if both else (0,))
            assert result[places].tolist() == [factor * k for k in range(1, 8)]
            assert np.count_nonzero(result) == len(places)
            del result, x
        ar.leave()
