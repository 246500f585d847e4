"""The counter around a death, with a played engine; real ranks die in launch/test_continue.py."""

from __future__ import annotations

import pytest
from played_members import played_context

from pycollectives.arguments import Group, creating
from pycollectives.counter.arguments import CounterArguments
from pycollectives.counter.continuing import ContinuingCounter
from pycollectives.support import native
from pycollectives.support.deadline import Deadline
from pycollectives.support.errors import ClosedError, RankFailedError

RANK = 2


class PlayedCounter:
    """The engine's side of rank 2, on another node than rank 0. A rank has died when `request` is not None."""

    def __init__(self, engine, *, start, nodes, timeout, name):
        self.known, self.request, self.served = start, None, []
        self.has_left = False

    def fetch_add(self, n, *, timeout=None):
        if self.request is not None:
            raise RankFailedError("rank 1 has died", [1])
        self.known += n
        return self.known - n

    def state(self):
        return {"known": self.known, "request": self.request, "served": self.served}

    def statistics(self):
        return {"waited": 0.25, "memory_bytes": 64}

    def leave(self):
        self.has_left = True


class Survivors:
    """Plays the recovery: the states of the others, and how often it is tried."""

    def __init__(self, monkeypatch):
        monkeypatch.setattr(native.core, "SharedCounter", PlayedCounter, raising=False)
        self.others, self.attempts = [], 1
        self.context = played_context(self.recover, rank=RANK, size=3, members=(0, 1, 2), nodes=(0, 0, 1))
        with creating(Group(RANK, 3, (0, 0, 1)), "counter[0]"):
            self.arguments = CounterArguments(10)
        self.counter = ContinuingCounter(self.context, self.arguments, Deadline(None))

    def recover(self, error, epoch, deadline):
        self.context.membership.members = (0, 2)
        for _ in range(self.attempts):
            own = self.counter.read_state((1,))
            self.counter.fill([*self.others, own], deadline)
            self.counter.remake(self.arguments, deadline)
        self.context.membership.epoch += 1
        self.counter.resume()


@pytest.fixture
def survivors(monkeypatch):
    return Survivors(monkeypatch)


def other(known, *served):
    return {"left": False, "known": known, "served": [list(entry) for entry in served]}


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_call_that_was_counted_keeps_its_numbers(survivors, attempts):
    survivors.attempts = attempts
    survivors.others = [other(20, (2, 4, 13), (1, 9, 15))]
    survivors.counter._core.request = (4, 3, None)
    assert survivors.counter.fetch_add(3) == 13
    assert survivors.counter.fetch_add(1) == 20


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_call_that_was_not_counted_is_made_again(survivors, attempts):
    survivors.attempts = attempts
    survivors.others = [other(20, (2, 3, 13))]
    survivors.counter._core.request = (4, 3, None)
    assert survivors.counter.fetch_add(3) == 20
    assert survivors.counter.fetch_add(1) == 23


def test_what_a_rank_knew_that_died_in_the_recovery_is_kept(survivors):
    """In the next attempt a survivor gives the same numbers."""
    survivors.counter._core.request = None
    states = [other(20, (1, 4, 13)), survivors.counter.read_state((0,))]
    survivors.counter.fill(states, Deadline(None))
    assert survivors.counter.read_state((0, 1)) == {"left": False, "known": 20, "served": [[1, 4, 13]]}


def test_an_answer_that_has_come_is_returned(survivors):
    """Rank 0's node is dead, and this rank knows most."""
    survivors.counter._core.known = 16
    survivors.counter._core.request = (4, 3, 13)
    assert survivors.counter.fetch_add(3) == 13
    assert survivors.counter.fetch_add(1) == 16


def test_the_interrupted_call_comes_first(survivors):
    """It had run into its limit; a death comes before it is repeated."""
    survivors.others = [other(20, (2, 4, 13))]
    survivors.counter._core.request = (4, 3, None)
    survivors.recover(None, 0, Deadline(None))
    with pytest.raises(ValueError, match=r"fetch_add\(3\) was given up .* got fetch_add\(2\)"):
        survivors.counter.fetch_add(2)
    assert survivors.counter.fetch_add(3) == 13


def test_what_it_has_waited_is_counted_on(survivors):
    survivors.counter._core.request = (1, 1, None)
    survivors.others = [other(12)]
    assert survivors.counter.fetch_add(1) == 12
    assert survivors.counter.statistics() == {"waited": 0.5, "memory_bytes": 64}


def test_after_leaving(survivors):
    engine = survivors.counter._core
    survivors.counter.leave()
    assert engine.has_left
    with pytest.raises(ClosedError):
        survivors.counter.fetch_add(1)
