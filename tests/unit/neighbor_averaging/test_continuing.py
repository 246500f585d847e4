"""The steps of a rank around a death, with a played engine; real ranks die in launch/test_continue.py."""

from types import SimpleNamespace

import numpy as np
import pytest
from played_members import played_context

from pycollectives.arguments import Group, creating
from pycollectives.neighbor_averaging.arguments import NeighborAveragingArguments, PushSumArguments
from pycollectives.neighbor_averaging.continuing_steps import ContinuingNeighborhood
from pycollectives.support.deadline import Deadline
from pycollectives.support.errors import ClosedError, RankFailedError


class PlayedCore:
    """An engine's collective, whose steps return the sum of their model and 10, unless `is_dead`."""

    def __init__(self):
        self.started = []
        self.is_dead = self.has_left = False
        self.weight = 0.5

    def check(self):
        if self.is_dead:
            raise RankFailedError("rank 2 has died", [2])

    def start(self, values):
        self.check()
        self.started.append(values.tolist())

    def test(self):
        self.check()
        return True

    def wait(self, out, timeout):
        self.final(out, timeout)

    def final(self, out, timeout):
        self.check()
        assert timeout > 0
        out[:] = np.array(self.started[-1]) + 10

    def leave(self):
        self.check()
        self.has_left = True

    def statistics(self):
        return {"waited": 1.0, "memory_bytes": 8, "steps": len(self.started)}

    @property
    def steps(self):
        return len(self.started)


@pytest.fixture
def played(monkeypatch):
    """Rank 0 of three; rank 2 dies when the newest core is dead, and the others are in step `others`."""
    play = SimpleNamespace(cores=[], others=0, limits=[])

    def make(collective, _deadline):
        collective._members, collective._epoch = ((0, 1, 2), (0, 1))[bool(play.cores)], len(play.cores)
        play.cores.append(PlayedCore())
        return play.cores[-1]

    def recover(_error, _epoch, deadline):
        play.limits.append(deadline.remaining())
        own = play.collective.read_state((2,))
        play.collective.fill([own, {"left": False, "done": play.others}], Deadline(None))
        play.collective.remake(play.collective._arguments, Deadline(None))
        play.collective.resume()
        membership.epoch += 1

    context = played_context(recover, rank=0, size=3)
    membership = context.membership
    monkeypatch.setattr(ContinuingNeighborhood, "_made", make)
    with creating(Group(0, 3, (0, 0, 0)), "averages"):
        arguments = NeighborAveragingArguments(np.zeros(2))
    play.collective = ContinuingNeighborhood(context, arguments, Deadline(None), push_sum=False)
    return play


def step(collective, value):
    collective.start(np.full(2, value))
    out = np.empty(2)
    collective.wait(out)
    return out.tolist()


@pytest.mark.parametrize("call", ["start", "test", "wait"])
def test_a_rank_takes_the_steps_alone_that_others_have_done(played, call):
    averaging = played.collective
    assert step(averaging, 1.0) == [11.0] * 2
    played.others = 3
    if call == "start":
        played.cores[0].is_dead = True
    averaging.start(np.full(2, 2.0))
    played.cores[0].is_dead = True
    if call == "test":
        assert averaging.test()
    out = np.empty(2)
    averaging.wait(out)
    assert out.tolist() == [2.0] * 2
    assert averaging.weight == 1.0
    averaging.start(np.full(2, 3.0))
    with pytest.raises(RuntimeError, match="the last step is not done"):
        averaging.start(np.full(2, 3.0))
    averaging.wait(out)
    assert out.tolist() == [3.0] * 2
    assert played.cores[1].started == []
    assert step(averaging, 4.0) == [14.0] * 2
    assert averaging.weight == 0.5
    assert averaging.statistics() == {"waited": 2.0, "memory_bytes": 8, "steps": 4}


def test_the_furthest_rank_begins_its_step_again(played):
    averaging = played.collective
    step(averaging, 1.0)
    model = np.full(2, 2.0)
    averaging.start(model)
    model[:] = -1  # the caller may overwrite it
    played.cores[0].is_dead, played.others = True, 1
    out = np.empty(2)
    averaging.wait(out)
    assert played.cores[1].started == [[2.0, 2.0]]
    assert out.tolist() == [12.0] * 2


def test_the_final_model_outlives_a_death(played):
    averaging = played.collective
    step(averaging, 1.0)
    out = np.empty(2)
    averaging.leave()
    played.cores[0].is_dead = True
    averaging.final(out)
    assert out.tolist() == [11.0] * 2
    assert averaging.closed
    with pytest.raises(ClosedError):
        averaging.start(out)


@pytest.mark.parametrize("steps", [0, 1])
@pytest.mark.parametrize("has_left", [True, False])
@pytest.mark.parametrize("others", [0, 5])
def test_the_final_model_is_that_of_a_step_that_has_begun(played, others, has_left, steps):
    averaging = played.collective
    for _ in range(steps):
        step(averaging, 1.0)
    averaging.start(np.full(2, 2.0))
    played.cores[0].is_dead, played.others = True, others
    if has_left:
        averaging.leave()
    out = np.empty(2)
    averaging.final(out)
    is_alone = has_left or others > 0
    assert out.tolist() == ([2.0] * 2 if is_alone else [12.0] * 2)
    assert averaging.weight == (1.0 if is_alone else 0.5)


def test_the_weight_begins_anew(played):
    averaging = played.collective
    step(averaging, 1.0)
    assert averaging.weight == 0.5
    averaging._membership.recover(None, 0, Deadline(None))
    assert averaging.weight == 1.0
    played.cores[1].is_dead = True
    out = np.empty(2)
    averaging.final(out)
    assert (out.tolist(), averaging.weight) == ([11.0] * 2, 1.0)


def test_arrays_may_have_another_shape(played):
    averaging = played.collective
    averaging.start(np.full((1, 2), 1.0))
    played.cores[0].is_dead, played.others = True, 3
    out = np.empty((2, 1))
    averaging.wait(out)
    assert out.tolist() == [[1.0], [1.0]]
    averaging.final(out)
    assert out.tolist() == [[1.0], [1.0]]


def test_a_recovery_in_start_has_its_limit(played):
    played.cores[0].is_dead = True
    played.collective.start(np.ones(2), timeout=5.0)
    assert 4.0 < played.limits[0] <= 5.0


def test_a_rank_that_has_left_leaves_again(played):
    averaging = played.collective
    step(averaging, 1.0)
    averaging.leave()
    averaging._membership.recover(None, 0, Deadline(None))
    assert played.cores[1].has_left
    out = np.empty(2)
    averaging.final(out)
    assert out.tolist() == [11.0] * 2


@pytest.mark.parametrize("kind", [NeighborAveragingArguments, PushSumArguments])
def test_steps_among_survivors(kind):
    """By positions; the first step of the new collective is the one in which ranks are."""
    with creating(Group(0, 3, (0,) * 3), "averages", 5):
        arguments = kind(np.zeros(2), topology="one-peer-exponential" if kind is PushSumArguments else "ring")
    members = (1, 2, 4)
    period = arguments.topology.period
    for first in (0, 1):
        steps = [arguments.for_engine(rank, members, first)["steps"] for rank in members]
        for number in range(period):
            matrix = np.zeros((3, 3))
            for position in range(3):
                own, taken, given = steps[position][number]
                matrix[position, position] = own
                for peer, weight in taken:
                    matrix[position, peer] = weight
                    assert (position, pytest.approx(weight)) in steps[peer][number][2]
                assert len(given) == sum(position in dict(steps[peer][number][1]) for peer in range(3))
            assert matrix.sum(axis=0) == pytest.approx(1)
            assert matrix.sum(axis=1) == pytest.approx(1)
            whole = arguments.topology.at((first + number) % period).matrix(arguments.weights)
            assert matrix[0, 1] >= whole[1, 2]
