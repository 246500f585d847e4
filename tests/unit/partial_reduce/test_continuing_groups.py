"""`preduce` around a death, with played engines; real ranks die in launch/test_continue.py."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from played_members import played_context

from pycollectives.arguments import Arguments, Group, creating
from pycollectives.partial_reduce import continuing_groups
from pycollectives.partial_reduce.continuing_groups import ContinuingGroups
from pycollectives.support.deadline import Deadline
from pycollectives.support.errors import RankFailedError, StallError

RANK, SIZE = 1, 4
DEAD = RankFailedError("rank 3 died", [3])


class PlayedGroups:
    """The engine's side: adds 10, and then raises the next of `errors`, if there is one. Notes places of members."""

    errors, calls, refused = [], [], []

    def __init__(self, context):
        self.cache = (1, 2)

    def prepared(self, x, places, op, timeout, stream=None, *, caller, on_host):
        assert on_host
        if timeout == -1 or not isinstance(x, np.ndarray):
            self.refused.append(places)
            raise ValueError("refused")

        def perform(timeout):
            self.calls.append(places)
            x[...] += 10
            self.during()
            if self.errors:
                raise self.errors.pop(0)

        return perform

    def during(self):
        """Do nothing; a test replaces it."""

    def close(self):
        self.cache = "closed"


class Survivors:
    """Plays the recovery: rank 3 has died, and `others` have these states."""

    def __init__(self, monkeypatch):
        monkeypatch.setattr(continuing_groups, "ExplicitGroups", PlayedGroups)
        monkeypatch.setattr(ContinuingGroups, "shared_bytes", self.shared)
        PlayedGroups.errors, PlayedGroups.calls, PlayedGroups.refused = [], [], []
        self.context = played_context(self.recover, rank=RANK, size=SIZE, members=tuple(range(SIZE)))
        self.context.checked = lambda service, make, name: self.arguments(name)
        self.limit = self.context.limit
        self.context.limit = self.checked_limit
        self.others = {0: self.state(0), 2: self.state(2)}
        self.members = (0, 1, 2)
        self.given, self.from_others, self.stalls, self.second = [], np.zeros(2), 0, {}
        self.is_stopped = False
        self.context.engine.check_usable = self.check_usable
        self.groups = ContinuingGroups(self.context)

    @staticmethod
    def arguments(name):
        with creating(Group(RANK, SIZE, (0,) * SIZE), name):
            return Arguments()

    @staticmethod
    def checked_limit(limit):
        if limit == -1:
            raise ValueError("timeout")
        return limit

    @staticmethod
    def state(rank, performed=(0, 0, 0, 0), group=(), nbytes=0):
        return {"rank": rank, "performed": list(performed), "group": list(group), "nbytes": nbytes}

    def check_usable(self):
        if self.is_stopped:
            raise DEAD

    def shared(self, values, what, deadline):
        self.given.append(values.copy())
        return values | self.from_others.view(np.uint8)

    def recover(self, error, epoch, deadline):
        self.is_stopped = True
        if self.stalls:
            self.stalls -= 1
            raise StallError("a survivor computes")
        self.is_stopped = False
        self.context.membership.members = self.members
        for others in (self.others, self.second):
            if others:
                own = self.groups.read_state((3,))
                states = sorted([*others.values(), own], key=lambda state: state["rank"])
                self.groups.fill(states, deadline)
                self.groups.remake(self.groups._arguments, deadline)
        self.context.membership.epoch += 1
        self.groups.resume()

    def reduce(self, x, group, timeout=30):
        self.groups.reduce(x, group, "SUM", timeout, None, caller="preduce")


@pytest.fixture
def survivors(monkeypatch):
    return Survivors(monkeypatch)


def test_a_reduce_is_made_again_with_the_values_that_it_had(survivors):
    x = np.ones(2)
    PlayedGroups.errors = [DEAD]
    survivors.reduce(x, [0, 1, 2, 3])
    assert x.tolist() == [11, 11]
    assert PlayedGroups.calls == [[0, 1, 2, 3], [0, 1, 2]]


def test_a_result_that_another_member_has_is_received(survivors):
    x = np.ones(2)
    survivors.reduce(x, [0, 1])
    survivors.others = {
        0: survivors.state(0, (0, 2, 1, 0)),
        2: survivors.state(2, (0, 0, 0, 0), (0, 1, 2), 16),
    }
    survivors.from_others = np.full(2, 42.0)
    PlayedGroups.errors = [DEAD]
    survivors.reduce(x, [0, 1, 2])
    assert x.tolist() == [42, 42]
    assert PlayedGroups.calls == [[0, 1], [0, 1, 2]]
    assert not np.concatenate(survivors.given).any(), "rank 0 gives it"
    assert survivors.groups._performed == [2, 0, 1, 0]


def test_a_result_is_given_to_the_members_that_lack_it(survivors):
    """The array has other values by now."""
    x = np.ones(2)
    survivors.reduce(x, [1, 2])
    x[:] = 7
    survivors.others[2] = survivors.state(2, group=(1, 2), nbytes=16)
    PlayedGroups.errors = [DEAD]
    survivors.reduce(x, [0, 1])
    (given,) = survivors.given
    assert given.view(np.float64).tolist() == [11, 11]
    assert x.tolist() == [17, 17]
    assert survivors.groups._performed == [1, 0, 1, 0]


def stalled(survivors, x, group):
    """Make a call that a death interrupts, and whose recovery stalls."""
    PlayedGroups.errors, survivors.stalls = [DEAD], 1
    with pytest.raises(StallError):
        survivors.reduce(x, group)


def test_a_call_that_stalls_in_a_recovery_is_made_again(survivors):
    x = np.ones(2)
    stalled(survivors, x, [0, 1, 3])
    assert x.tolist() == [1, 1]
    PlayedGroups.errors = [DEAD]
    survivors.reduce(x, [0, 1, 3])
    assert x.tolist() == [11, 11]
    assert PlayedGroups.calls[-1] == [0, 1]


def test_after_a_stall_the_array_is_the_program_s(survivors):
    """A later recovery does not write to it; a result that another member has is for the same call."""
    x = np.ones(2)
    stalled(survivors, x, [0, 1])
    x[:] = 123
    survivors.others[0] = survivors.state(0, (0, 1, 0, 0))
    survivors.from_others = np.full(2, 42.0)
    survivors.recover(None, 0, Deadline(None))
    assert x.tolist() == [123, 123]
    survivors.reduce(x, [0, 1])
    assert x.tolist() == [42, 42]
    survivors.reduce(x, [0, 1])
    assert x.tolist() == [52, 52]
    assert survivors.groups._performed == [2, 0, 0, 0]


def test_another_call_after_a_stall_forgets_the_first_one(survivors):
    stalled(survivors, np.ones(2), [0, 1])
    survivors.others[0] = survivors.state(0, (0, 1, 0, 0))
    survivors.recover(None, 0, Deadline(None))
    survivors.reduce(np.ones(2), [1, 2])
    assert survivors.groups._performed == [1, 0, 1, 0], "the first counts as completed, as it does on rank 0"


def test_ranks_may_be_in_the_next_call_of_the_same_group(survivors):
    """Rank 2 lacks the first (0, 1, 2); this rank has completed it, and is in the second one."""
    x = np.ones(2)
    survivors.reduce(x, [0, 1, 2])
    survivors.reduce(np.full(2, 90.0), [0, 1])
    survivors.others = {
        0: survivors.state(0, (0, 2, 1, 0), (0, 1, 2), 16),
        2: survivors.state(2, (0, 0, 0, 0), (0, 1, 2), 16),
    }
    PlayedGroups.errors = [DEAD]
    survivors.reduce(x, [0, 1, 2])
    assert x.tolist() == [21, 21], "performed, and not the first result again"
    assert PlayedGroups.calls[-2:] == [[0, 1, 2], [0, 1, 2]]
    assert survivors.groups._performed == [3, 0, 2, 0]


def test_the_result_of_the_call_that_a_rank_lacks_is_given(survivors):
    """Not the newest, which is of another group."""
    survivors.reduce(np.ones(2), [1, 2])
    survivors.reduce(np.full(2, 90.0), [0, 1])
    survivors.others = {0: survivors.state(0, (0, 1, 0, 0)), 2: survivors.state(2, group=(1, 2), nbytes=16)}
    PlayedGroups.errors = [DEAD]
    survivors.reduce(np.zeros(2), [1, 2])
    (given,) = survivors.given
    assert given.view(np.float64).tolist() == [11, 11]


def test_a_result_of_an_interrupted_attempt_is_forgotten(survivors):
    """The rank that had it has died before all had received it: all perform the group again."""
    x = np.ones(2)
    PlayedGroups.errors = [DEAD]
    survivors.others[0] = survivors.state(0, (0, 1, 0, 0))
    survivors.from_others = np.full(2, 42.0)
    survivors.second = {2: survivors.state(2)}
    survivors.reduce(x, [0, 1, 2])
    assert x.tolist() == [11, 11]


def test_another_thread_does_not_disturb_it(survivors, monkeypatch):
    refused = []

    def other():
        with pytest.raises(RuntimeError, match="one thread at a time"):
            survivors.reduce(np.zeros(2), [0, 1])
        refused.append(True)

    def during(self):
        if not refused:
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()

    monkeypatch.setattr(PlayedGroups, "during", during)
    x = np.ones(2)
    PlayedGroups.errors = [DEAD]
    survivors.reduce(x, [0, 1])
    assert refused
    assert x.tolist() == [11, 11]


def test_dead_members_are_left_out_and_places_are_those_of_the_living(survivors):
    survivors.members = (1, 3)
    survivors.others = {3: survivors.state(3)}
    survivors.recover(None, 0, Deadline(None))
    survivors.reduce(np.ones(2), [0, 1, 3])
    assert PlayedGroups.calls == [[0, 1]]


def test_counts_that_differ_after_an_error_are_made_equal(survivors):
    survivors.others[0] = survivors.state(0, (0, 5, 0, 0))
    survivors.recover(None, 0, Deadline(None))
    assert survivors.groups._performed == [5, 0, 0, 0]


@pytest.mark.parametrize(("x", "timeout"), [([1.0], 30), (np.ones(2), -1)])
def test_what_is_refused_is_told_to_the_others(survivors, x, timeout):
    with pytest.raises(ValueError, match="refused"):
        survivors.reduce(x, [0, 1], timeout)
    assert PlayedGroups.refused == [[0, 1]]
    assert PlayedGroups.calls == []


def test_the_part_is_closed_with_its_communicator(survivors):
    assert survivors.groups.cache == (1, 2)
    survivors.groups.close()
    assert survivors.groups.cache == "closed"
