"""Queues around a death, with a played engine; real ranks die in launch/test_continue.py."""

from __future__ import annotations

import json

import numpy as np
import pytest
from played_members import played_context

from pycollectives.arguments import Group, creating
from pycollectives.hop.arguments import TokenQueueArguments, UpdateQueueArguments
from pycollectives.hop.continuing_queues import ContinuingTokenQueue, ContinuingUpdateQueue
from pycollectives.support import native
from pycollectives.support.deadline import Deadline
from pycollectives.support.errors import ClosedError, RankFailedError

SIZE = 3


class PlayedEngine:
    """What both queues have in common. A rank has died when `has_failed` is True."""

    def __init__(self, engine, **options):
        assert options.get("tokens", 0) >= 0
        self.options, self.has_failed, self.has_left = options, False, False

    def check(self):
        if self.has_failed:
            raise RankFailedError("a rank has died", [1])

    def statistics(self):
        return {"waited": 0.25, "memory_bytes": 64}

    def leave(self):
        self.has_left = True


class PlayedTokens(PlayedEngine):
    def __init__(self, engine, **options):
        super().__init__(engine, **options)
        self.tokens = options["tokens"]

    def enqueue(self, tokens):
        self.check()
        self.tokens += tokens

    def dequeue(self, tokens, *, timeout=None):
        self.check()
        self.tokens -= tokens

    def size(self):
        return self.tokens


class PlayedUpdates(PlayedEngine):
    """The engine's side of a sender or of the owner, whose updates a test puts into `queue`."""

    def __init__(self, engine, **options):
        super().__init__(engine, **options)
        self.queue, self.oldest, self.fails_in_size = [], 0, False

    def enqueue(self, update, iteration, *, timeout=None):
        self.check()

    def arrives(self, sender, iteration, value):
        self.queue.append((np.full(1, value).view(np.uint8), iteration, sender))

    def _matching(self, iteration, sender):
        return [each for each in self.queue if iteration in (None, each[1]) and sender in (None, each[2])]

    def dequeue(self, m, iteration, sender, *, timeout=None):
        self.check()
        if iteration is not None:
            self.oldest = iteration
            self.queue = [each for each in self.queue if each[1] >= iteration]
        found = sorted(self._matching(iteration, sender), key=lambda each: each[1:])[:m]
        assert len(found) == m, "the call would wait"
        self.queue = [each for each in self.queue if all(each is not taken for taken in found)]
        return found

    def size(self, iteration, sender):
        if self.fails_in_size:
            self.has_failed = True
        return len(self._matching(iteration, sender))


class Survivors:
    """All ranks of a queue in one process. `kill` plays the recovery; `attempts`: how often it is tried."""

    def __init__(self, monkeypatch, make, arguments, attempts):
        monkeypatch.setattr(native.core, "TokenQueue", PlayedTokens, raising=False)
        monkeypatch.setattr(native.core, "UpdateQueue", PlayedUpdates, raising=False)
        self.attempts, self.queues, self.contexts = attempts, [], []
        for rank in range(SIZE):
            context = played_context(self.recover, rank=rank, size=SIZE, members=(0, 1, 2), nodes=(0, 0, 1))
            with creating(Group(rank, SIZE, (0, 0, 1)), "queue"):
                queue = make(context, arguments(), Deadline(None))
            monkeypatch.setattr(queue, "shared_bytes", self.shared_bytes, raising=False)
            self.queues.append(queue)
            self.contexts.append(context)

    def shared_bytes(self, values, what, deadline):
        self.parts.append(values)
        return np.bitwise_or.reduce([*self.parts, *self.first_parts])

    def kill(self, *dead):
        live = [rank for rank in self.contexts[0].membership.members if rank not in dead]
        for rank in live:
            self.queues[rank]._core.has_failed = True
            self.contexts[rank].membership.members = tuple(live)
        for _ in range(self.attempts):
            states = json.loads(json.dumps([self.queues[rank].read_state(dead) for rank in live]))
            self.first_parts = []
            for _ in range(2):  # the first time to have all parts
                self.parts = []
                for rank in reversed(live) if self.first_parts else live:
                    received, dequeued = self._of_owner(rank)
                    self.queues[rank].fill(states, Deadline(None))
                    if not self.first_parts and received is not None:
                        self.queues[rank]._received, self.queues[rank]._dequeued = received, dequeued
                self.first_parts = self.parts or [np.zeros(1, np.uint8)]
            for rank in live:
                self.queues[rank].remake(self.queues[rank]._arguments, Deadline(None))
        for rank in live:
            self.contexts[rank].membership.epoch += 1
            self.queues[rank].resume()

    def _of_owner(self, rank):
        queue = self.queues[rank]
        if not isinstance(queue, ContinuingUpdateQueue):
            return None, None
        return list(queue._received), dict(queue._dequeued)

    def recover(self, error, epoch, deadline):
        raise AssertionError("a test plays the recovery by `kill`")


@pytest.fixture(params=[1, 2])
def updates(monkeypatch, request):
    """Rank 0 owns it."""
    return Survivors(
        monkeypatch,
        ContinuingUpdateQueue,
        lambda: UpdateQueueArguments(np.zeros(1), owner=0, max_ig=1),
        request.param,
    )


@pytest.fixture(params=[1, 2])
def tokens(monkeypatch, request):
    return Survivors(
        monkeypatch, ContinuingTokenQueue, lambda: TokenQueueArguments(owner=0, taker=1, tokens=5), request.param
    )


def enqueue(survivors, sender, iteration, value, *, arrives):
    survivors.queues[sender].enqueue(np.full(1, float(value)), iteration)
    owner = survivors.queues[0]
    if arrives:
        owner._core.arrives(owner._members.index(sender), iteration, float(value))


def taken(survivors, m, iteration=None, sender=None):
    found = survivors.queues[0].dequeue(m, iteration, sender)
    return [(sender, iteration, float(values.view(float)[0])) for values, iteration, sender in found]


def test_updates_that_were_not_dequeued_arrive_once(updates):
    enqueue(updates, 2, 0, 20, arrives=True)
    assert taken(updates, 1) == [(2, 0, 20)]
    enqueue(updates, 2, 1, 21, arrives=True)
    enqueue(updates, 2, 2, 22, arrives=False)
    updates.kill(1)
    assert updates.queues[0].size(None, None) == 2
    assert taken(updates, 2) == [(2, 1, 21), (2, 2, 22)]
    enqueue(updates, 2, 3, 23, arrives=True)
    assert taken(updates, 1) == [(2, 3, 23)]
    assert updates.queues[0].size(None, None) == 0


def test_two_of_one_iteration_are_told_apart(updates):
    enqueue(updates, 1, 4, 40, arrives=True)
    assert taken(updates, 1) == [(1, 4, 40)]
    enqueue(updates, 1, 4, 41, arrives=True)
    updates.kill(2)
    assert taken(updates, 1) == [(1, 4, 41)]
    enqueue(updates, 1, 4, 42, arrives=False)
    updates.kill()
    assert taken(updates, 1) == [(1, 4, 42)]


def test_updates_of_former_and_present_collectives_are_dequeued_in_order(updates):
    enqueue(updates, 2, 7, 27, arrives=True)
    updates.kill(1)
    enqueue(updates, 2, 7, 28, arrives=True)
    assert taken(updates, 1) == [(2, 7, 27)]
    assert taken(updates, 1) == [(2, 7, 28)]


def test_an_earlier_update_in_the_engine_comes_first(updates):
    enqueue(updates, 2, 9, 29, arrives=True)
    updates.kill()
    enqueue(updates, 1, 3, 13, arrives=True)
    assert taken(updates, 1) == [(1, 3, 13)]
    assert taken(updates, 1) == [(2, 9, 29)]


def test_stale_updates_stay_stale(updates):
    enqueue(updates, 2, 1, 21, arrives=True)
    enqueue(updates, 1, 8, 18, arrives=True)
    assert taken(updates, 1, iteration=8) == [(1, 8, 18)]
    updates.kill(1)
    assert updates.queues[0].size(None, None) == 0
    assert updates.queues[0]._core.oldest == 8


def test_the_queue_of_a_dead_owner_takes_updates_in_vain(updates):
    enqueue(updates, 1, 0, 10, arrives=True)
    updates.kill(0)
    updates.queues[1].enqueue(np.zeros(1), 1)
    assert updates.queues[1].statistics()["memory_bytes"] == 64
    assert updates.queues[1]._core.options["senders"] == []


def test_a_dead_sender_sends_no_more(updates):
    enqueue(updates, 2, 0, 20, arrives=True)
    updates.kill(2)
    with pytest.raises(ClosedError, match="expected 1 updates, got 0, and rank 2 is dead"):
        taken(updates, 1, sender=2)


def test_iterations_of_a_sender_ascend(updates):
    enqueue(updates, 1, 5, 15, arrives=True)
    with pytest.raises(ValueError, match="expected at least 5"):
        updates.queues[1].enqueue(np.zeros(1), 4)


def test_tokens_are_kept(tokens):
    tokens.queues[0].enqueue(3)
    tokens.queues[1].dequeue(6)
    tokens.kill(2)
    assert [tokens.queues[rank].size() for rank in (0, 1)] == [2, 2]
    tokens.queues[0].enqueue(4)
    tokens.kill()
    assert [tokens.queues[rank].size() for rank in (0, 1)] == [6, 6]


def test_a_dead_owner_gives_any_number_of_tokens(tokens):
    tokens.queues[1].dequeue(2)
    tokens.kill(0)
    tokens.queues[1].dequeue(1000)
    assert tokens.queues[1].size() == 3


def test_tokens_for_a_dead_taker_are_lost(tokens):
    tokens.kill(1)
    tokens.queues[0].enqueue(1000)
    assert tokens.queues[0].size() == 5


def test_a_rank_that_left_has_left_the_next_collective(tokens):
    tokens.queues[0].leave()
    tokens.kill(2)
    assert tokens.queues[0]._core.has_left
    with pytest.raises(ClosedError):
        tokens.queues[0].enqueue(1)


def test_an_owner_that_has_left_gives_tokens_after_a_death_too(tokens):
    tokens.queues[0].leave()
    tokens.queues[1].dequeue(1000)
    tokens.kill(2)
    tokens.queues[1].dequeue(1000)


def test_updates_that_a_call_has_received_outlast_a_death_in_it(updates):
    enqueue(updates, 2, 9, 29, arrives=True)
    updates.kill()
    enqueue(updates, 1, 3, 13, arrives=True)
    enqueue(updates, 1, 4, 14, arrives=True)
    updates.queues[0]._core.fails_in_size = True
    updates.contexts[0].membership.recover = lambda *_: updates.kill()
    assert taken(updates, 2) == [(1, 3, 13), (1, 4, 14)]
    assert taken(updates, 1) == [(2, 9, 29)]


def test_a_call_that_stalls_has_discarded_stale_updates(updates):
    enqueue(updates, 1, 0, 10, arrives=True)
    with pytest.raises(AssertionError, match="would wait"):
        taken(updates, 1, iteration=3)
    updates.kill(2)
    assert updates.queues[0].size(None, None) == 0


def test_a_sender_keeps_two_updates_of_a_slot(updates):
    """One in the queue, and one that waits for its slot."""
    enqueue(updates, 1, 0, 10, arrives=True)
    enqueue(updates, 1, 2, 12, arrives=False)  # of the same slot
    updates.kill(2)
    assert taken(updates, 2) == [(1, 0, 10), (1, 2, 12)]


@pytest.mark.parametrize("sent", [True, False])
def test_an_update_is_kept_before_a_signal_handler_can_raise(updates, monkeypatch, sent):
    def enqueues(update, iteration, *, timeout):
        raise KeyboardInterrupt if sent else ClosedError

    monkeypatch.setattr(updates.queues[1]._core, "enqueue", enqueues)
    with pytest.raises((KeyboardInterrupt, ClosedError)):
        updates.queues[1].enqueue(np.ones(1), 0)
    assert len(updates.queues[1]._all_kept) == sent


def test_an_update_of_no_dimension(updates):
    updates.queues[1].enqueue(np.array(4.0), 0)
    assert updates.queues[1]._all_kept[0].values.view(float).tolist() == [4.0]
