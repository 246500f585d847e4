"""Comparisons of all ranks: of what they say, and of how many collectives they have made."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import pycollectives as pc
from pycollectives import _testing
from pycollectives.support.native import core
from pycollectives.testing import run_ranks


@pytest.mark.parametrize("size", [2, 3, 4, 7, 8])
def test_a_rank_that_returns_keeps_nobody_waiting(size):
    """A program that drives its own engine computes afterwards: what it has to pass on must have left."""
    engines = _testing.busy_loopback(size)

    def compare(engine, text):
        return engine.compare(text, what="a comparison", timeout=5.0)

    with ThreadPoolExecutor(size) as threads:
        assert list(threads.map(compare, engines, [b"the same"] * size)) == [None] * size
    texts = [str(rank).encode() * 3000 for rank in range(size)]
    with ThreadPoolExecutor(size) as threads:
        assert list(threads.map(compare, engines, texts)) == [texts] * size


@pytest.mark.parametrize("ranks_per_node", [1, "all"])
def test_ranks_that_have_not_made_the_same_collectives(ranks_per_node):
    """One that a rank alone could not make shifts the ids of all that follow: their messages would be mixed up."""

    def program(comm):
        comm.partial_allreduce(like=np.ones(4), policy="solo").close()
        if comm.rank != 1:  # what another rank's memory did not suffice for
            core.PartialReduce(
                comm._engine, count=1, dtype_name="int64", op="SUM", algorithms=[], nodes=range(4), name="odd"
            )
        for _ in range(2):
            with pytest.raises(pc.MismatchError) as caught:
                comm.partial_allreduce(like=np.ones(4), policy="solo")
        comm.abort()
        return str(caught.value)

    expected = "partial_allreduce: ranks have not made the same number of collectives: 1 on rank 1, 2 on ranks 0, 2, 3;"
    assert all(text.startswith(expected) for text in run_ranks(4, program, ranks_per_node=ranks_per_node))


def test_a_refusal_is_named_before_anything_else():
    def program(comm):
        if comm.rank == 1:
            core.PartialReduce(
                comm._engine, count=1, dtype_name="int64", op="SUM", algorithms=[], nodes=range(2), name="odd"
            )
        with pytest.raises(ValueError if comm.rank == 0 else pc.MismatchError):
            comm.partial_allreduce(like=np.ones(4), history=-1 if comm.rank == 0 else 8, policy="solo")
        comm.abort()

    run_ranks(2, program)
