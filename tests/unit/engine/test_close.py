"""Closing a communicator: what a rank can still do, and what the others learn."""

import threading

import numpy as np
import pytest

import pycollectives as pc
from pycollectives.testing import run_ranks


@pytest.mark.parametrize("ranks_per_node", [1, "all"])
def test_nothing_begins_after_a_close_that_ran_into_its_limit(ranks_per_node):
    """The others count messages to find out when the last one has arrived: a rank that has closed sends no new ones."""
    may_close = threading.Event()

    def program(comm):
        if comm.rank == 1:
            may_close.wait(30)
            comm.close()
            return
        with pytest.raises(pc.StallError, match="not closed on rank 1"):
            comm.close(timeout=0.2)
        with pytest.raises(pc.ClosedError):
            comm.preduce(np.ones(4), [0, 1])
        with pytest.raises(pc.ClosedError):
            comm.partial_allreduce(like=np.ones(4))
        may_close.set()
        comm.close()

    run_ranks(2, program, ranks_per_node=ranks_per_node)


def test_a_rank_that_left_ends_a_creation_on_all_others():
    """Also on those that have not been told that it left: who finds out tells them."""

    def program(comm):
        if comm.rank < 2:
            comm.preduce(np.ones(4), [0, 1])
        if comm.rank == 0:
            return "leaves"  # tells rank 1 alone, with which it has been in a group
        with pytest.raises(pc.StallError) as caught:
            comm.partial_allreduce(like=np.ones(4), name="never")
        return str(caught.value)

    _, told, other = run_ranks(3, program, ranks_per_node=1)
    assert "rank 0 left the communicator" in told
    assert "rank 1 gave up waiting" in other
