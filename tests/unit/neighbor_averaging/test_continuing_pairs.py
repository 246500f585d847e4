"""A rank's model around a death, with a played engine; real ranks die in launch/test_continue.py."""

from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from played_members import played_context

from pycollectives.arguments import Group, creating
from pycollectives.neighbor_averaging import continuing_pairs
from pycollectives.neighbor_averaging.arguments import PairwiseArguments
from pycollectives.neighbor_averaging.continuing_pairs import ContinuingPairs
from pycollectives.support.deadline import Deadline
from pycollectives.support.errors import ClosedError, RankFailedError, StallError
from pycollectives.support.native import core as native

COUNTS = {"averages": 1, "applied": 2, "staleness_max": 3, "waited": 1.0, "memory_bytes": 8}


class PlayedModel:
    """An engine's model, in float32."""

    held_dtype_name = "float32"

    def __init__(self, *, initial, neighbors, **_):
        self.held, self.neighbors = np.array(initial), neighbors
        if initial.dtype == np.uint16:
            self.held = self.held.view(ml_dtypes.bfloat16)
        self.held = self.held.astype(np.float32)
        self.told, self.has_left = [], False

    def read(self, out):
        out[:] = self.held

    def apply(self, delta):
        self.held += delta

    def read_kept(self, out):
        if [2] not in self.told:  # as for each dead rank once
            raise RankFailedError("rank 2 has died", [2])
        out[:] = self.held

    def set_told(self, dead):
        self.told.append(list(dead))

    def leave(self):
        self.has_left = True

    def check_usable(self):
        pass

    def statistics(self):
        return dict(COUNTS)


class PlayedRounds:
    """An equalizer whose mean is 10, and which ends as `play` says."""

    def __init__(self, _context, model, **_):
        self.model, self.replaced, self.failed, self.has_left = model, None, False, False
        if PlayedRounds.dies:
            PlayedRounds.dies = False
            raise RankFailedError("rank 0 has died", [0])

    def equalize(self, _deadline):
        before, mean = self.model.held.copy(), np.full_like(self.model.held, 10)
        self.model.held[:] = mean
        self.replaced = before, mean
        if PlayedRounds.end is not None:
            raise PlayedRounds.end
        self.replaced = None
        return mean

    def leave(self):
        self.has_left = True

    def statistics_of_rounds(self):
        return {"waited": 0.5, "memory_bytes": 4}


@pytest.fixture
def played(monkeypatch):
    """Rank 1 of four in a ring; rank 2 dies, and the others have equalized `others` times."""
    PlayedRounds.end, PlayedRounds.dies = None, False
    monkeypatch.setattr(native, "PairwiseAveraging", PlayedModel)
    monkeypatch.setattr(continuing_pairs, "Equalizer", PlayedRounds)
    play = SimpleNamespace(others=0, states=(0, 3), left=())

    def recover(_error=None, _epoch=0, _deadline=None):
        membership.members = (0, 1, 3)
        own = play.pairs.read_state((2,))
        others = [{"left": rank in play.left, "member": rank, "equalized": play.others} for rank in play.states]
        play.pairs.fill([own, *others], Deadline(None))
        play.pairs.remake(play.pairs._arguments, Deadline(None))
        play.pairs.resume()
        membership.epoch += 1

    context = played_context(recover, rank=1, size=4, members=(0, 1, 2, 3), nodes=(0,) * 4)
    membership = context.membership
    membership.replaces = False

    def make(dtype):
        with creating(Group(1, 4, (0,) * 4), "model"):
            arguments = PairwiseArguments(np.ones(2, dtype), topology="ring")
        play.pairs = ContinuingPairs(context, arguments, Deadline(None))
        return play.pairs

    play.make, play.recover = make, recover
    return play


def read(pairs):
    out = np.empty(2, np.float32)
    pairs.read(out)
    return out.tolist()


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_a_model_is_kept(played, dtype):
    pairs = played.make(dtype)
    assert pairs._core.neighbors == [0, 2]
    pairs.apply(np.full(2, 2, np.float32))
    played.recover()
    assert read(pairs) == [3, 3]
    assert pairs._core.neighbors == [0, 2]  # ranks 0 and 3
    PlayedRounds.dies = True
    with pytest.raises(RankFailedError):
        played.recover()
    played.recover()
    assert read(pairs) == [3, 3]
    assert pairs.statistics() == COUNTS | {"averages": 4, "applied": 8, "waited": 4.0}


def test_a_rank_without_a_state_takes_part(played):
    """It completes the creation in the recovery."""
    pairs = played.make(np.float32)
    played.states = (0,)
    played.recover()
    assert pairs._core.neighbors == [0, 2]


def test_a_rank_that_has_left_is_nobodys_neighbor(played):
    pairs = played.make(np.float32)
    played.left = (3,)
    played.recover()
    assert pairs._core.neighbors == [0]


def test_a_mean_that_some_lack_is_taken_back(played):
    pairs = played.make(np.float32)
    PlayedRounds.end = RankFailedError("rank 2 has died", [2])
    pairs.apply(np.full(2, 2, np.float32))
    seen = []

    def recover(*_):
        PlayedRounds.end = None
        played.recover()
        seen.append(read(pairs))

    pairs._membership.recover = recover
    assert pairs.equalize(Deadline(None)).tolist() == [10, 10]
    assert seen == [[3, 3]]
    assert read(pairs) == [10, 10]
    assert pairs._equalized == 1


def test_a_mean_that_a_survivor_has_returned_is_complete(played):
    pairs = played.make(np.float32)
    PlayedRounds.end = RankFailedError("rank 2 has died", [2])
    played.others = 1
    assert pairs.equalize(Deadline(None)).tolist() == [10, 10]
    assert read(pairs) == [10, 10]
    assert pairs._equalized == 1


def test_a_call_that_another_call_has_completed_is_not_made_again(played):
    pairs = played.make(np.float32)
    PlayedRounds.end = StallError("not done")
    with pytest.raises(StallError):
        pairs.equalize(Deadline(None))
    played.others = 1
    played.recover()
    PlayedRounds.end = AssertionError("once is enough")
    assert pairs.equalize(Deadline(None)).tolist() == [10, 10]
    PlayedRounds.end = None
    pairs.equalize(Deadline(None))
    assert pairs._equalized == 2


@pytest.mark.parametrize("is_completed", [False, True])
def test_a_newcomer_continues_the_call_of_the_donor(played, is_completed):
    """A mean that the donor is about to return, the newcomer returns without the others."""
    pairs = played.make(np.float32)
    PlayedRounds.end = StallError("not done")
    with pytest.raises(StallError):
        pairs.equalize(Deadline(None))
    played.others = int(is_completed)
    played.recover()
    position, model = pairs.position(), read(pairs)
    newcomer = played.make(np.float32)
    newcomer.take_position(position)
    newcomer.remake(newcomer._arguments, Deadline(None))
    assert read(newcomer) == model
    PlayedRounds.end = AssertionError("once is enough") if is_completed else None
    assert newcomer.equalize(Deadline(None)).tolist() == [10, 10]
    assert newcomer._equalized == 1


def test_a_rank_that_has_left_has_its_last_model_for_newcomers(played):
    pairs = played.make(np.float32)
    pairs._membership.replaces = True
    pairs.apply(np.full(2, 2, np.float32))
    pairs.leave()
    assert pairs.position().model.tolist() == [3, 3]


@pytest.mark.parametrize("recovers", [False, True])
def test_leaving_ends_both_parts(played, recovers):
    pairs = played.make(np.float32)
    pairs.leave()
    assert pairs._core.has_left
    assert pairs._equalizer.has_left
    if recovers:
        played.recover()
        assert pairs._core.has_left
        assert pairs._equalizer.has_left
    with pytest.raises(ClosedError):
        pairs.apply(np.ones(2, np.float32))
