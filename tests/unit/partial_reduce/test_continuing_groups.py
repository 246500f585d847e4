"""`preduce` around a death, with played engines; real ranks die in launch/test_continue.py."""

from __future__ import annotations

import numpy as np
import pytest
from played_members import played_context

from pycollectives.arguments import Arguments, Group, creating
from pycollectives.partial_reduce import continuing_groups
from pycollectives.partial_reduce.continuing_groups import ContinuingGroups
from pycollectives.support.deadline import Deadline
from pycollectives.support.errors import RankFailedError

RANK, SIZE = 1, 4


class PlayedGroups:
    """The engine's side: adds 10 and notes the places of the members; dies in its first calls."""

    deaths = 0

    def __init__(self, context):
        self.cache = (1, 2)

    def reduce(self, x, places, op, timeout, stream=None, *, caller, on_host):
        assert on_host
        PlayedGroups.calls.append(places)
        if not isinstance(x, np.ndarray):
            raise TypeError
        x += 10
        if PlayedGroups.deaths > 0:
            PlayedGroups.deaths -= 1
            raise RankFailedError("rank 3 died", [3])

    def close(self):
        self.cache = "closed"


class Survivors:
    """Plays the recovery: rank 3 has died, and the others have these states."""

    def __init__(self, monkeypatch):
        monkeypatch.setattr(continuing_groups, "ExplicitGroups", PlayedGroups)
        PlayedGroups.calls, PlayedGroups.deaths = [], 0
        self.context = played_context(self.recover, rank=RANK, size=SIZE, members=tuple(range(SIZE)))
        self.context.checked = lambda service, make, name: self.arguments(name)
        self.others = {0: [0, 0, 0, 0], 2: [0, 0, 0, 0]}
        self.lost, self.members = (3,), (0, 1, 2)
        self.groups = ContinuingGroups(self.context)

    @staticmethod
    def arguments(name):
        with creating(Group(RANK, SIZE, (0,) * SIZE), name):
            return Arguments()

    def states(self, own):
        others = [{"rank": rank, "performed": performed} for rank, performed in self.others.items()]
        return [*others, own]

    def recover(self, error, epoch, deadline):
        self.context.membership.members = self.members
        own = self.groups.read_state(self.lost)
        self.groups.fill(self.states(own), deadline)
        self.groups.remake(self.groups._arguments, deadline)
        self.context.membership.epoch += 1
        self.groups.resume()

    def reduce(self, x, group):
        self.groups.reduce(x, group, "AVG", 30, None, caller="preduce")


@pytest.fixture
def survivors(monkeypatch):
    return Survivors(monkeypatch)


def test_a_reduce_is_made_again_with_the_values_that_it_had(survivors):
    x = np.ones(2)
    PlayedGroups.deaths = 1
    survivors.reduce(x, [0, 1, 2, 3])
    assert x.tolist() == [11, 11]
    assert PlayedGroups.calls == [[0, 1, 2, 3], [0, 1, 2]]


def test_members_that_have_completed_it_take_no_part_again(survivors):
    survivors.reduce(np.ones(2), [0, 1])
    survivors.others = {0: [0, 2, 0, 0], 2: [0, 0, 0, 0]}
    PlayedGroups.deaths = 1
    survivors.reduce(np.ones(2), [0, 1, 2])
    assert PlayedGroups.calls[1:] == [[0, 1, 2], [1, 2]]
    survivors.others = {0: [0, 2, 0, 0], 2: [0, 1, 0, 0]}
    PlayedGroups.deaths = 1
    survivors.reduce(np.ones(2), [0, 1])
    assert PlayedGroups.calls[3:] == [[0, 1], [0, 1]], "counts are the same again"


def test_dead_members_are_left_out_and_places_are_those_of_the_living(survivors):
    survivors.members, survivors.lost = (1, 3), (0, 2)
    survivors.others = {3: [0, 0, 0, 0]}
    survivors.recover(None, 0, Deadline(None))
    survivors.reduce(np.ones(2), [0, 1, 3])
    assert PlayedGroups.calls == [[0, 1]]


def test_values_that_are_refused(survivors):
    """The engine's side refuses them, and tells the others."""
    with pytest.raises(TypeError):
        survivors.reduce([1.0], [0, 1])
    assert PlayedGroups.calls == [[0, 1]]


def test_the_part_is_closed_with_its_communicator(survivors):
    assert survivors.groups.cache == (1, 2)
    survivors.groups.close()
    assert survivors.groups.cache == "closed"
