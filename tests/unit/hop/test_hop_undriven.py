"""Hop between nodes whose engines move only while their ranks call: a transfer stops wherever a test likes."""

import threading
import time

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


def advance_until(comm, is_done):
    end = time.monotonic() + LIMIT
    while not is_done():
        assert time.monotonic() < end
        comm.advance()
        time.sleep(1e-4)  # the other threads want to go on
    take_in(comm)


@pytest.mark.parametrize("steps", [1, 2, 20])
def test_a_jump_whose_call_was_given_up_goes_no_further_than_the_next_call_says(steps):
    """Rank 0 is three behind, aims at iteration 3, and waits for updates of iteration 2 that are not sent."""
    first, lets_go, ended = threading.Event(), threading.Event(), threading.Event()
    ahead, done = threading.Barrier(3), []

    def lead(comm, hop):
        for k in hop.iterations(4, timeout=LIMIT):
            if k == 0:  # rank 0 needs the update of this iteration
                advance_until(comm, first.is_set)
            hop.step(ONE, timeout=LIMIT)
        done.append(comm.rank)
        advance_until(comm, lambda: len(done) == 2)  # the other one needs what this rank has to send
        ahead.wait(LIMIT)
        assert lets_go.wait(LIMIT)
        advance_until(comm, ended.is_set)

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
        options = {"mode": pc.hop.BackupWorkers(1), "skip": pc.hop.Skip(10), "max_ig": 3}
        hop = comm.hop(ONE, topology="complete", **options)
        if comm.rank > 0:
            return lead(comm, hop)
        try:
            return lag(comm, hop)
        finally:
            first.set()
            lets_go.set()
            ended.set()

    landed = min(steps, 3)
    assert run_ranks(3, program, **UNDRIVEN)[0] == (landed, landed - 1)


def test_a_stall_names_the_receivers_whose_transfer_has_not_ended():
    """max_ig = 1: the update of iteration 2 needs the memory of that of iteration 0. Rank 2 has it, rank 1 has not."""
    entered, received, stalled = threading.Barrier(3), threading.Event(), threading.Event()

    def lead(comm, hop):
        """Go on to iteration 1, which gives rank 0 tokens for 2."""
        for k in hop.iterations(2, timeout=LIMIT):
            if k == 1:
                entered.wait(LIMIT)
                if comm.rank == 2:
                    advance_until(comm, lambda: hop._collective.queued == 2)
                    received.set()
                assert stalled.wait(LIMIT)
            hop.step(ONE, timeout=LIMIT)

    def follow(comm, hop):
        entered.wait(LIMIT)
        for _ in hop.iterations(2, timeout=LIMIT):
            hop.step(ONE, timeout=LIMIT)
        advance_until(comm, received.is_set)
        text = r"the iteration after 1 \(waits for the end of a transfer before iteration 2 to rank 1\): .* rank 1"
        with pytest.raises(pc.StallError, match=text):
            next(hop.iterations(1, timeout=0.3))
        assert hop.iteration == 2
        stalled.set()
        assert next(hop.iterations(1, timeout=LIMIT)) == 2
        hop.step(ONE, timeout=LIMIT)

    def program(comm):
        hop = comm.hop(ONE, topology="complete", mode=pc.hop.BoundedStaleness(9), max_ig=1)
        if comm.rank > 0:
            return lead(comm, hop)
        try:
            return follow(comm, hop)
        finally:
            stalled.set()

    run_ranks(3, program, **UNDRIVEN)


def test_an_update_that_was_on_its_way_when_it_became_stale_is_discarded():
    """The owner takes iteration 3, then asks for 4; the update arrives after that."""
    accepted, stale, sent, seen = (threading.Event() for _ in range(4))

    def program(comm):
        q = comm.update_queue(ONE, owner=0, max_ig=1)
        if comm.rank == 1:
            q.enqueue(np.full(1, 3.0), iteration=3, timeout=LIMIT)
            accepted.set()
            assert stale.wait(LIMIT)
            take_in(comm)  # the answer of rank 0, upon which it sends
            sent.set()
            assert seen.wait(LIMIT)
            q.enqueue(np.full(1, 4.0), iteration=4, timeout=LIMIT)
            return None
        assert accepted.wait(LIMIT)
        take_in(comm)
        with pytest.raises(pc.StallError, match="waits for the update of iteration 4 of rank 1"):
            q.dequeue(1, iteration=4, timeout=0.2)
        stale.set()
        assert sent.wait(LIMIT)
        take_in(comm)
        assert q.size() == q.size(iteration=3) == q.size(sender=1) == 0
        seen.set()
        return [(u.iteration, u.update[0]) for u in q.dequeue(1, timeout=LIMIT)]

    assert run_ranks(2, program, **UNDRIVEN)[0] == [(4, 4.0)]


def test_updates_that_are_accepted_at_once_all_arrive():
    """The sender is told of three in one call."""
    offered, accepted = threading.Event(), threading.Event()

    def program(comm):
        q = comm.update_queue(ONE, owner=0, max_ig=2)
        if comm.rank == 1:
            for k in range(3):
                q.enqueue(np.full(1, float(k)), iteration=k, timeout=LIMIT)
            offered.set()
            assert accepted.wait(LIMIT)
            return None
        assert offered.wait(LIMIT)
        take_in(comm)
        accepted.set()
        return [(u.iteration, u.update[0]) for u in q.dequeue(3, timeout=LIMIT)]

    assert run_ranks(2, program, **UNDRIVEN)[0] == [(0, 0.0), (1, 1.0), (2, 2.0)]
