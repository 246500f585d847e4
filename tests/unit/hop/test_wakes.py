"""Hop on a node: what a rank does wakes the neighbors that may wait for it. Without that they would only nap."""

import threading

import numpy as np
import pytest

import pycollectives as pc
from pycollectives.testing import run_ranks

LIMIT = 30.0
ONE = np.ones(1)


class Meeting:
    """Rank 0 acts while rank 1 looks on: how often that has woken rank 1."""

    def __init__(self, comm, made, barrier):
        self.comm, self.made, self.barrier = comm, made, barrier

    def rings_of(self, act):
        self.barrier.wait(LIMIT)
        before = self.made._collective.rings
        self.barrier.wait(LIMIT)
        if self.comm.rank == 0:
            act()
        self.barrier.wait(LIMIT)
        return self.made._collective.rings - before


def on_two_ranks(program):
    """What rank 1 returns; `program(comm, rings_of)` is given a function that makes its object known."""
    barrier = threading.Barrier(2)
    return run_ranks(2, lambda comm: program(comm, lambda made: Meeting(comm, made, barrier).rings_of))[1]


def test_an_update_queue_wakes_the_owner_and_makes_room():
    def program(comm, met):
        to_other = comm.update_queue(ONE, owner=1, max_ig=1)
        to_self = comm.update_queue(ONE, owner=0, max_ig=1)
        if comm.rank == 1:
            to_self.enqueue(ONE, iteration=0)
        owner, sender = met(to_other), met(to_self)
        return [
            owner(lambda: to_other.enqueue(ONE, iteration=0)),
            sender(lambda: to_self.dequeue(1, iteration=0)),  # rank 1 is the sender
            owner(to_other.close),
        ]

    enqueued, dequeued, left = on_two_ranks(program)
    assert enqueued == 1
    assert dequeued == 1
    assert left == 1


def test_a_token_queue_wakes_the_taker():
    def program(comm, met):
        q = comm.token_queue(owner=0, taker=1)
        taker = met(q)
        return [taker(lambda: q.enqueue(2)), taker(q.close)]

    assert on_two_ranks(program) == [1, 1]


@pytest.mark.parametrize(("mode", "acknowledgements"), [(pc.hop.BackupWorkers(1), 0), (pc.hop.NotifyAck(), 1)])
def test_an_iteration_wakes_the_neighbors(mode, acknowledgements):
    """By its update; by its acknowledgement; by a token and the next update."""

    def program(comm, met):
        hop = comm.hop(ONE, topology="ring", mode=mode)
        iterations = hop.iterations(2, timeout=LIMIT)
        if comm.rank == 1:
            next(iterations)  # its update is there
        neighbor = met(hop)
        rings = [neighbor(lambda: next(iterations)), neighbor(lambda: hop.step(ONE, timeout=LIMIT))]
        if comm.rank == 1:
            hop.step(ONE, timeout=LIMIT)
        rings.append(neighbor(lambda: next(iterations)))
        rings.append(neighbor(hop.close))
        return rings

    assert on_two_ranks(program) == [1, acknowledgements, 2, 1]
