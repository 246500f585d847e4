"""The calls of a rank around a death, with a played engine; real ranks die in launch/test_continue.py."""

from types import SimpleNamespace

import numpy as np
import pytest
from played_members import played_context

from pycollectives import groups
from pycollectives.arguments import Group, creating
from pycollectives.partial_reduce.arguments import PartialReduceArguments
from pycollectives.partial_reduce.continuing import ContinuingReduce
from pycollectives.support.deadline import Deadline
from pycollectives.support.errors import ClosedError, RankFailedError, StallError


class PlayedCore:
    """An engine's collective, which overwrites half of the weights and raises, if `is_dead`."""

    def __init__(self):
        self.calls = []
        self.is_dead = self.has_left = self.stalls = False

    def average(self, values, *, step, group, timeout):
        if self.stalls:
            values[:1] = -1
            raise StallError("average: not done")
        if self.is_dead:
            values[: values.size // 2] = -1
            raise RankFailedError("rank 2 has died", [2])
        assert timeout > 0
        self.calls.append((step, list(group)))
        values += 10
        return tuple(group) or (0, 1), len(self.calls) - 1, 0.5, 0

    def leave(self, values=None):
        self.has_left = True

    def statistics(self):
        return {"averages": len(self.calls), "cache_hits": 1, "cache_misses": 2, "waited": 0.5, "memory_bytes": 8}


@pytest.fixture
def played(monkeypatch):
    """Rank 1 of four; rank 2 dies when the newest core is dead, and rank 3 has done `others` steps."""
    play = SimpleNamespace(cores=[], others=0, sequence=0)

    def make(collective, _deadline):
        collective._members, collective._epoch = ((0, 1, 2, 3), (0, 1, 3))[bool(play.cores)], len(play.cores)
        play.cores.append(PlayedCore())
        return play.cores[-1]

    def recover(_error, _epoch, _deadline):
        own = play.reduce.read_state((2,))
        other = {"left": False, "member": 3, "step": play.others, "sequence": play.sequence}
        play.reduce.fill([own, other], Deadline(None))
        play.reduce.remake(play.reduce._arguments, Deadline(None))
        play.reduce.resume()
        membership.epoch += 1

    context = played_context(recover, rank=1, size=4, members=(0, 1, 3))
    membership = context.membership
    monkeypatch.setattr(ContinuingReduce, "_made", make)
    with creating(Group(1, 4, (0,) * 4), "reduce"):
        arguments = PartialReduceArguments(np.zeros(4))
    play.reduce = ContinuingReduce(context, arguments, Deadline(None))
    return play


def test_weights_are_as_before_the_call_that_is_repeated(played):
    weights = np.arange(4.0)
    played.cores[0].is_dead = True
    info = played.reduce.average(weights, step=0)
    assert weights.tolist() == [10.0, 11.0, 12.0, 13.0]
    assert info == ((0, 1), 0, 0.5, 0)


def test_weights_are_as_before_a_call_that_was_given_up(played):
    """The engine may write a part of the average after the time limit, until it stops."""
    weights = np.arange(4.0)
    played.cores[0].stalls = True
    with pytest.raises(StallError):
        played.reduce.average(weights, step=0)
    weights[2] = -1
    played.cores[0].stalls, played.cores[0].is_dead = False, True
    played.reduce.average(weights, step=0)
    assert weights.tolist() == [10.0, 11.0, 12.0, 13.0]


def test_numbers_are_those_of_the_communicator(played):
    weights = np.zeros(4)
    played.sequence = 7
    played.reduce.average(weights, step=0)
    played.cores[0].is_dead = True
    group, sequence, _, _ = played.reduce.average(weights, step=1, group=(1, 2, 3))
    assert played.cores[1].calls == [(1, [1, 2])]
    assert (group, sequence) == ((1, 3), 0)  # under a rule, the engine's number is the step
    assert played.reduce.average(weights, step=2)[:2] == ((0, 1), 7 + 1)
    assert played.reduce.statistics() == {
        "averages": 3,
        "cache_hits": 2,
        "cache_misses": 4,
        "waited": 1.0,
        "memory_bytes": 8,
    }


def test_no_rank_waits_for_a_member_that_has_done_the_step(played):
    weights = np.zeros(4)
    played.others = 6
    played.cores[0].is_dead = True
    played.reduce.average(weights, step=5, group=(1, 2, 3))
    played.reduce.average(weights, step=6, group=(1, 3))
    assert played.cores[1].calls == [(5, [1]), (6, [1, 2])]


def test_a_newcomer_begins_at_the_step_of_the_donor(played):
    """All ranks know it: under a rule no rank waits for the newcomer in an earlier step."""
    survivor = {"left": False, "member": 3, "step": 5, "sequence": 7}
    played.reduce._membership.members = (0, 1, 2, 3)
    played.reduce.fill([{**survivor, "member": 0, "step": 6}, survivor], Deadline(None))
    assert played.reduce._partners((1, 2, 3), 5) == [3]
    assert played.reduce._partners((1, 2, 3), 6) == [1, 2, 3]
    assert played.reduce.begins_at == 0
    played.reduce._membership.is_joining = True
    played.reduce.fill([survivor], Deadline(None))
    assert played.reduce.begins_at == 5


def test_a_rank_that_has_left_leaves_again(played):
    played.reduce.leave()
    played.reduce._membership.recover(None, 0, None)
    assert played.cores[1].has_left
    with pytest.raises(ClosedError):
        played.reduce.average(np.zeros(4), step=0)


@pytest.mark.parametrize(
    ("given", "left", "expected"),
    [
        ("random:4", 3, groups.RandomGroups(3)),
        ("random:4", 1, groups.RandomGroups(2)),
        ("smart", 4, groups.SmartGroups(3)),
        (groups.StaticGroups(2), 3, groups.StaticGroups(2)),
    ],
)
def test_groups_fit_the_survivors(given, left, expected):
    with creating(Group(0, left, (0,) * left), "reduce", 5):
        arguments = PartialReduceArguments(np.zeros(2), groups=given, coordinator_rank=4)
    assert arguments.groups == expected
    with (
        pytest.raises(ValueError, match="expected a size of 2 to 5"),
        creating(Group(0, left, (0,) * left), "reduce", 5),
    ):
        PartialReduceArguments(np.zeros(2), groups="random:6")


def test_weights_may_change_after_a_recovery_that_was_not_done_in_time(played):
    weights = np.arange(4.0)
    played.cores[0].is_dead = True
    recover, engine = played.reduce._membership.recover, played.reduce._context.engine

    def stall(*_):
        engine.check_usable = lambda: played.cores[0].average(np.zeros(4), step=0, group=(), timeout=1)  # has stopped
        raise StallError("the others continue: not complete")

    played.reduce._membership.recover = stall
    with pytest.raises(StallError):
        played.reduce.average(weights, step=0)
    assert weights.tolist() == [0.0, 1.0, 2.0, 3.0]
    weights -= 0.5
    played.reduce._membership.recover = recover
    played.reduce.average(weights, step=0)
    assert weights.tolist() == [9.5, 10.5, 11.5, 12.5]
