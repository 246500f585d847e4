"""What the system refuses to one rank is an error on all of them."""

from __future__ import annotations

import pytest
from launcher import mpirun


@pytest.mark.parametrize(("ranks_per_node", "advice"), [(1, ""), (3, "; ranks_per_node=1 works without")])
def test_memory_that_one_rank_cannot_have(ranks_per_node, advice):
    """Nothing is made, nobody waits, and the next one can be made; there is no advice to do what is done already."""
    outcome = mpirun(3, "little_memory.py", ranks_per_node)
    assert outcome.status == 0
    for rank in range(3):
        refused, total = outcome.said(rank)
        assert refused.startswith("the board of 'large': on rank 1: ")
        assert refused.endswith(f"mmap: Cannot allocate memory{advice}")
        assert total == "total 3.0"


def test_memory_that_one_rank_cannot_have_for_hop():
    """Neither for the copies of what it sends, nor for what it dequeues, which is then still there."""
    outcome = mpirun(3, "little_memory_hop.py")
    assert outcome.status == 0
    for rank in range(3):
        refused, mean, *more = outcome.said(rank)
        assert refused == "the memory of 'large': on rank 1: out of memory"
        assert mean == "mean 1.0"
        assert more == ["out of memory, 2 updates are there", "then [(0, 0.0), (2, 2.0)]"] * (rank == 1)
