"""Hop between nodes whose engines move only while their ranks call: a transfer stops wherever a test likes."""

import threading

import numpy as np
import pytest

import pycollectives as pc
from pycollectives.testing import run_ranks

LIMIT = 30.0
ONE = np.ones(1)
UNDRIVEN = {"progress": "caller", "ranks_per_node": 1, "timeout": 10.0}


def take_in(comm):
    """Receive all messages that have been sent to this rank."""
    for _ in range(100):
        comm.advance()


@pytest.mark.parametrize("steps", [1, 2, 20])
def test_a_jump_whose_call_was_given_up_goes_no_further_than_the_next_call_says(steps):
    """Rank 0 is three behind, aims at iteration 3, and waits for updates of iteration 2 that are not sent."""
    first, lets_go, ended = threading.Event(), threading.Event(), threading.Event()
    ahead = threading.Barrier(3)

    def lead(comm, hop):
        for k in hop.iterations(4, timeout=LIMIT):
            while k == 0 and not first.is_set():  # rank 0 needs the update of iteration 0
                comm.advance()
            hop.step(ONE, timeout=LIMIT)
        ahead.wait(LIMIT)
        while not ended.is_set():
            if lets_go.is_set():
                comm.advance()

    def lag(comm, hop):
        for _ in hop.iterations(1, timeout=LIMIT):
            hop.step(ONE, timeout=LIMIT)
        first.set()
        ahead.wait(LIMIT)
        take_in(comm)
        with pytest.raises(pc.StallError, match=r"after 0 \(waits for the update of iteration 2 of ranks 1, 2\)"):
            next(hop.iterations(20, timeout=0.3))
        if steps > 1:
            lets_go.set()
        k = next(hop.iterations(steps, timeout=LIMIT if steps > 1 else 0.3))
        return k, hop.statistics().skipped

    def program(comm):
        options = {"mode": pc.BackupWorkers(1), "skip": pc.Skip(10), "max_ig": 3}
        hop = comm.hop(like=ONE, topology="complete", **options)
        if comm.rank > 0:
            return lead(comm, hop)
        try:
            return lag(comm, hop)
        finally:
            first.set()
            ended.set()

    landed = min(steps, 3)
    assert run_ranks(3, program, **UNDRIVEN)[0] == (landed, landed - 1)


def test_a_stall_names_the_receivers_whose_transfer_has_not_ended():
    """max_ig = 1: the update of iteration 2 needs the memory of that of iteration 0. Rank 2 has it, rank 1 has not."""
    entered, stalled = threading.Barrier(3), threading.Event()

    def program(comm):
        hop = comm.hop(like=ONE, topology="complete", mode=pc.BoundedStaleness(9), max_ig=1)
        if comm.rank > 0:  # they go on to iteration 1, and give rank 0 tokens for 2
            for k in hop.iterations(2, timeout=LIMIT):
                if k == 1:
                    entered.wait(LIMIT)
                    while not stalled.is_set():
                        if comm.rank == 2:
                            comm.advance()
                hop.step(ONE, timeout=LIMIT)
            return None
        entered.wait(LIMIT)
        text = r"the iteration after 1 \(waits for the end of a transfer before iteration 2 to rank 1\): .* rank 1"
        with pytest.raises(pc.StallError, match=text):
            for _ in hop.iterations(3, timeout=0.5):
                hop.step(ONE, timeout=LIMIT)
        assert hop.iteration == 2
        stalled.set()
        for k in hop.iterations(1, timeout=LIMIT):
            assert k == 2
            hop.step(ONE, timeout=LIMIT)
        return float(hop.parameters[0])

    run_ranks(3, program, **UNDRIVEN)
