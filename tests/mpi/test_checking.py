"""`PYC_CHECK=1` over MPI."""

import warnings

import numpy as np
import pytest
from mpi4py import MPI

import pycollectives as pc

WORLD = MPI.COMM_WORLD
LIMIT = 30.0

pytestmark = pytest.mark.mpi(min_size=2)


@pytest.fixture(autouse=True)
def on(monkeypatch):
    monkeypatch.setenv("PYC_CHECK", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield
    WORLD.Barrier()


def test_all_ranks_must_have_it(monkeypatch):
    if WORLD.rank == 1:
        monkeypatch.setenv("PYC_CHECK", "0")
    with pytest.raises(pc.MismatchError, match=r"PYC_CHECK: 1 on ranks? 0.*0 on rank 1"):
        pc.Communicator(WORLD, timeout=LIMIT)


@pytest.mark.parametrize("progress", ["thread", "caller"])
@pytest.mark.parametrize("ranks_per_node", ["all", 1])
def test_flush_of_different_collectives(ranks_per_node, progress):
    comm = pc.Communicator(WORLD, ranks_per_node=ranks_per_node, progress=progress, timeout=LIMIT)
    a, b = (comm.partial_allreduce(count=3, dtype="f8", name=name, policy="solo") for name in "AB")
    a.allreduce(np.ones(3), timeout=LIMIT)
    with pytest.raises(pc.MismatchError, match=r"different calls: flush of 'A' .* on rank 0, flush of 'B' .* on rank"):
        (a if comm.rank == 0 else b).flush()
    comm.abort()


@pytest.mark.parametrize("ranks_per_node", ["all", 1])
def test_a_result_that_is_not_the_same(ranks_per_node, monkeypatch):
    from pycollectives.partial_allreduce import checked

    real = checked.hash_of_bits
    if WORLD.rank == WORLD.size - 1:
        monkeypatch.setattr(checked, "hash_of_bits", lambda array: real(array + (array[0] == 2 * WORLD.size)))
    comm = pc.Communicator(WORLD, ranks_per_node=ranks_per_node, timeout=LIMIT)
    ar = comm.partial_allreduce(count=3, dtype="f8", policy=pc.Full(), name="A")
    for value in (1.0, 2.0, 3.0):
        ar.allreduce(np.full(3, value), timeout=LIMIT)
    with pytest.raises(pc.MismatchError, match=f"round 1 of 'A' .*: result: bits .* on rank {WORLD.size - 1}"):
        ar.flush()
    comm.abort()
