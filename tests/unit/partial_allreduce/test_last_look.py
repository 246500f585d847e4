"""A wait whose round completes while it asks who is missing does not stall."""

import time

import numpy as np
import pytest

import pycollectives as pc
from pycollectives.testing import run_ranks


@pytest.mark.parametrize("progress", ["caller", "thread"])
@pytest.mark.parametrize("ranks_per_node", [1, "all"])
def test_it_ends_well(progress, ranks_per_node):
    """Where messages move in calls only, nobody answers before rank 1 comes: 0.5 s are waited for an answer."""
    asks = progress == "caller" and ranks_per_node == 1

    def program(comm):
        with comm.partial_allreduce(np.zeros(1), policy=pc.Full()) as ar:
            if comm.rank == 1:
                time.sleep(0.35)
            handle = ar.contribute(np.ones(1))
            try:
                handle.wait(timeout=0.2 if comm.rank == 0 else 30.0)
                stalled = False
            except pc.StallError:
                stalled = True
            return stalled, handle.wait(timeout=30.0).contributors

    stalls = [stalled for stalled, _ in run_ranks(2, program, progress=progress, ranks_per_node=ranks_per_node)]
    assert stalls == [not asks, False]
