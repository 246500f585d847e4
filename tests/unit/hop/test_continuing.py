"""Iterations of a rank around a death, with a played engine; real ranks die in launch/test_continue.py."""

from types import SimpleNamespace

import numpy as np
import pytest
from played_members import played_context

from pycollectives.arguments import Group, creating
from pycollectives.hop.arguments import HopArguments
from pycollectives.hop.continuing import ContinuingHop
from pycollectives.hop.modes import BackupWorkers
from pycollectives.support.deadline import Deadline
from pycollectives.support.errors import RankFailedError


class PlayedCore:
    """An engine's collective, which adds 100 in each step."""

    def __init__(self, model):
        self.model, self.iteration, self.done = model, -1, 0
        self.is_dead = self.has_left = False
        self.received = [(1, 0)]

    def check(self):
        if self.is_dead:
            self.model += 0.5  # half an average
            raise RankFailedError("rank 2 has died", [2])

    def enter(self, last, timeout=0.0):
        self.check()
        assert last >= 0
        self.iteration += 1
        return self.iteration

    def step(self, delta, timeout):
        self.check()
        self.model += delta + 100
        self.done += 1

    def leave(self):
        self.has_left = True

    def statistics(self):
        return {"iterations": self.done, "jumps": 0, "skipped": 0, "waited": 1.0, "memory_bytes": 8}


@pytest.fixture
def played(monkeypatch):
    """Rank 0 of three; rank 2 dies, and rank 1 is in iteration `others`."""
    play = SimpleNamespace(cores=[], others=0, notices=False)

    def make(hop, _deadline):
        hop._members, hop._epoch = ((0, 1, 2), (0, 1))[bool(play.cores)], len(play.cores)
        play.cores.append(PlayedCore(hop._model))
        return play.cores[-1]

    def recover(*_):
        play.notices = False
        own = play.hop.read_state((2,))
        play.hop.fill([own, {"left": False, "iteration": play.others}], Deadline(None))
        play.hop.remake(play.hop._arguments, Deadline(None))
        play.hop.resume()
        membership.epoch += 1

    def check_usable():
        if play.notices:
            raise RankFailedError("rank 2 has died", [2])

    context = played_context(recover, rank=0, size=3)
    membership, context.engine.check_usable = context.membership, check_usable
    monkeypatch.setattr(ContinuingHop, "_made", make)
    with creating(Group(0, 3, (0,) * 3), "hop"):
        arguments = HopArguments(np.zeros(2), topology="ring")
    play.hop = ContinuingHop(context, arguments, Deadline(None), model=np.zeros(2))
    return play


def iterate(hop):
    number = hop.enter(99)
    hop.step(np.ones(2))
    return number, hop._model.tolist()


@pytest.mark.parametrize("call", ["enter", "step"])
def test_a_rank_catches_up(played, call):
    hop = played.hop
    assert iterate(hop) == (0, [101] * 2)
    played.others = 3
    if call == "step":
        assert hop.enter(99) == 1
    played.cores[0].is_dead = True
    if call == "enter":
        assert hop.enter(99) == 1
    hop.step(np.ones(2))
    assert hop._model.tolist() == [102] * 2
    assert hop.enter(99) == 2
    with pytest.raises(RuntimeError, match="iteration 2 has not ended; call step first"):
        hop.enter(99)
    hop.step(np.ones(2))
    assert played.cores[1].iteration == -1
    assert iterate(hop) == (3, [204] * 2)
    assert hop.received == [(1, 3)]
    assert hop.statistics() == {"iterations": 4, "jumps": 0, "skipped": 0, "waited": 2.0, "memory_bytes": 8}


def test_a_rank_that_catches_up_notices_a_death(played):
    hop = played.hop
    played.others = 3
    played.cores[0].is_dead = True
    hop.enter(99)
    played.notices = True
    hop.step(np.ones(2))
    assert len(played.cores) == 3
    assert hop._model.tolist() == [1] * 2


def test_the_furthest_rank_repeats_its_step(played):
    hop = played.hop
    iterate(hop)
    hop.enter(99)
    played.cores[0].is_dead, played.others = True, 1
    hop.step(np.ones(2))
    assert hop._model.tolist() == [202] * 2
    assert played.cores[1].iteration == 0
    assert (hop.iteration, hop.statistics()["iterations"]) == (1, 2)


def test_a_rank_that_has_left_leaves_again(played):
    played.hop.leave()
    played.hop._membership.recover()
    assert played.cores[1].has_left


def test_the_graph_of_survivors():
    """By positions; a backup worker less than in-neighbors, at most."""
    with creating(Group(0, 3, (0,) * 3), "hop", 5):
        arguments = HopArguments(np.zeros(2), topology="ring", mode="backup:2")
    made = arguments.for_engine((0, 2, 3))
    assert made["in_neighbors"] == [(1, 2), (0, 2), (0, 1)]
    assert made["out_neighbors"] == made["in_neighbors"]
    assert (made["backup"], arguments.for_engine((0, 3))["backup"]) == ([2, 2, 2], [1, 1])
    with creating(Group(0, 3, (0,) * 3), "hop", 5):
        arguments = HopArguments(np.zeros(2), topology="ring", mode=BackupWorkers([2, 1, 2, 0, 2]))
    assert arguments.for_engine((0, 2, 3))["backup"] == [2, 2, 0]
    assert arguments.for_engine((0, 1, 2, 3, 4)) == arguments.for_engine()
