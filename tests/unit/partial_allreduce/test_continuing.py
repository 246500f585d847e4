"""What a rank takes along after a death, with a played engine; real ranks die in launch/test_continue.py."""

import json
import math
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from played_members import played_context

from pycollectives.arguments import Group, creating
from pycollectives.membership.whole_calls import WholeCall
from pycollectives.partial_allreduce.arguments import PartialAllreduceArguments
from pycollectives.partial_allreduce.continuing import ContinuingAllreduce
from pycollectives.partial_allreduce.eager_mean import EagerMean
from pycollectives.partial_allreduce.recovery import Unused
from pycollectives.support.deadline import Deadline
from pycollectives.support.errors import RankFailedError
from pycollectives.support.native import core

COUNTERS = dict.fromkeys(("included", "late", "missed", "overrun", "waited", "contributions", "memory_bytes"), 0)


DEATH = RankFailedError("rank 1 has died", [1])


def info_of(number, *, included=True):
    return core.restored_round_info(number, 0, included, [0, 1], 2, 0, 0, False, 0, [])


class PlayedCore:
    """An engine's collective, whose requests complete when `info` is set."""

    def __init__(self):
        self.handles = []
        self.deposits = []
        self.flushes = 0
        self.result = np.zeros(2)
        self.rounds = 0
        self.state = {"completed": 0, "newest": None, "contributions": 0, "delivered": 0, "taken": 0, "lacking": 0}
        self.state |= {"missed": 0, "sum": None, "flushed": None}
        self._sum = None
        self.is_late = False
        self.tested = 0
        self.is_direct = False
        self.kept = []
        self.direct = 0
        self.direct_user = threading.get_ident()
        self.has_contributed = False

    @property
    def contributions(self):
        return len(self.handles) + self.direct

    def begin_direct(self):
        self.is_direct = True

    def end_direct(self, *, waits):
        self.is_direct = False
        kept, self.kept = self.kept, []
        return kept

    def keep(self, values, *, handle=None, is_open=False, has_died=False):
        """Play a direct call."""
        assert self.is_direct
        self.direct += 1
        self.kept.append((self.contributions, np.full(2, values), is_open, has_died, handle))

    def test(self):
        self.tested += 1
        return True

    def contribute(self, values):
        handle = SimpleNamespace(late=self.is_late, values=values.copy(), info=None)
        handle.test = self.test
        handle.wait = lambda timeout: handle.info
        handle.completed_info = lambda: handle.info
        self.handles.append(handle)
        return handle

    def recovery_state(self):
        return self.state | {"contributions": self.contributions}

    stragglers = ()

    def statistics(self):
        return COUNTERS | {"stragglers": self.stragglers}

    def continue_from(self, lacking, missed, values, divisor):
        if values is not None:
            self._sum = np.frombuffer(values) / divisor

    def receive_pending(self):
        self.result = np.zeros(2) if self._sum is None else self._sum

    def deposit(self, values):
        self.deposits.append(values.copy())

    def set_result(self, values, divisor):
        self.result = np.frombuffer(values) / divisor

    def start_flush(self):
        self.flushes += 1

    def abort(self):
        return 0

    def flush(self, timeout):
        self.result = np.full(2, 2.0)
        return info_of(0)


@pytest.fixture
def engines(monkeypatch):
    made = []

    def make(collective, _deadline):
        collective._members, collective._epoch = (0, 1), len(made)
        made.append(PlayedCore())
        return made[-1]

    monkeypatch.setattr(ContinuingAllreduce, "_made", make)
    return made


@pytest.fixture
def sums(engines):
    return make()


def make(*, is_joining=False, **options):
    recovered = []
    context = played_context(lambda error, epoch, deadline: recovered.append((error.ranks, epoch)), rank=0, size=2)
    context.rank, context.membership.is_joining, context.membership.recovered = 0, is_joining, recovered
    with creating(Group(0, 2, (0, 0)), "sum"):
        return ContinuingAllreduce(context, PartialAllreduceArguments(np.zeros(2), **options), Deadline(None))


def newcomer(donor, engines, **options):
    """Return the collective of a rank that replaces a dead one, at the position of the donor."""
    new = make(is_joining=True, **options)
    new.fill([donor.read_state((1,))], Deadline(None))
    new.take_position(donor.position())
    new.remake(new._arguments, Deadline(None))
    new._membership.is_joining = False
    new.resume()
    return new


def recover(collective, engines, **state):
    engines[-1].state |= state
    with collective.stopped():
        own = collective.read_state((1,))
        collective.fill([own], Deadline(None))
        collective.remake(collective._arguments, Deadline(None))
        collective.resume()


@pytest.fixture
def direct(sums):
    """A collective whose `allreduce` is the engine's."""
    sums._begin_direct()
    return sums


def test_late_data_of_direct_calls_is_handed_over_again(direct, engines):
    engines[0].keep(1.0)
    engines[0].keep(2.0)
    assert direct.statistics()["contributions"] == 2
    recover(direct, engines, completed=3, delivered=1)
    assert [data.tolist() for data in engines[1].deposits] == [[2.0, 2.0]]
    assert engines[1].handles == []
    assert direct.statistics()["contributions"] == 2
    assert not engines[1].is_direct


@pytest.mark.parametrize("has_arrived", [True, False])
def test_an_interrupted_direct_call_is_completed(direct, engines, has_arrived):
    handle = SimpleNamespace(late=False, completed_info=lambda: None) if has_arrived else None
    engines[0].keep(4.0, handle=handle, is_open=True, has_died=True)

    recover(direct, engines, completed=0, delivered=0)
    engines[1].handles[0].info, engines[1].result = info_of(0), np.full(2, 9.0)
    result, info = direct._allreduce_again(np.full(2, 4.0), None, math.inf, DEATH)
    assert [handle.values.tolist() for handle in engines[1].handles] == [[4.0, 4.0]]
    assert result.tolist() == [9.0, 9.0]
    assert info.included


def test_an_interrupted_direct_call_whose_round_was_complete_receives_its_result(direct, engines):
    handle = SimpleNamespace(late=False, completed_info=lambda: info_of(0))
    engines[0].keep(4.0, handle=handle, is_open=True, has_died=True)
    newest = (info_of(0), False, (np.full(2, 3.0).tobytes(), 1))
    recover(direct, engines, completed=1, delivered=1, missed=1, sum=newest[2], newest=newest)
    out = np.zeros(2)
    assert direct._allreduce_again(np.full(2, 4.0), out, math.inf, DEATH)[0] is out
    assert out.tolist() == [3.0, 3.0]
    assert engines[1].handles == engines[1].deposits == []


def test_a_direct_call_that_handed_nothing_over_is_made_again(direct, engines, monkeypatch):
    monkeypatch.setattr(direct, "_allreduce", lambda x, out, *, timeout: (x, out, timeout))
    assert direct._allreduce_again("x", "out", math.inf, DEATH) == ("x", "out", math.inf)
    assert [(list(ranks), epoch) for ranks, epoch in direct._membership.recovered] == [([1], 0)]


def test_a_stalled_direct_call_does_not_take_the_next_ones_place(direct, engines):
    """Its data is delivered by the next round; then calls are direct again."""
    engines[0].keep(4.0, handle=SimpleNamespace(late=False, completed_info=lambda: None), is_open=True)
    request = direct.contribute(np.ones(2))
    assert direct._interrupted is None
    engines[0].handles[0].info = info_of(0)
    request.wait()
    assert engines[0].is_direct


def test_the_thread_of_direct_calls_must_flush(direct, engines):
    engines[0].keep(4.0)
    engines[0].direct_user = -1
    assert not direct.has_contributed
    with direct.stopped():
        assert direct._contributor == -1


def test_requests_end_direct_calls_until_they_are_complete(direct, engines):
    engines[0].keep(1.0)
    request = direct.contribute(np.ones(2))
    assert not engines[0].is_direct
    assert direct.statistics()["contributions"] == 2
    engines[0].handles[0].info = info_of(0)
    request.wait()
    assert engines[0].is_direct
    direct.flush()
    assert engines[0].is_direct
    direct.abort()
    assert not engines[0].is_direct


@pytest.mark.parametrize("first", ["older", "newer"])
def test_the_sum_of_missed_rounds_is_received_once(sums, engines, first):
    """A rank dies after a round completed, before its call received it. Another call continues."""
    older, newer = sums.contribute(np.ones(2)), sums.contribute(np.full(2, 5.0))
    engines[0].handles[0].info = info_of(0)
    newest = (info_of(0), False, (np.full(2, 3.0).tobytes(), 1))
    recover(sums, engines, completed=1, delivered=1, missed=1, sum=newest[2], newest=newest)
    assert [handle.values.tolist() for handle in engines[1].handles] == [[5.0, 5.0]]
    received = []
    for request in (older, newer) if first == "older" else (newer, older):
        if request is newer:
            engines[1].handles[0].info, engines[1].result = info_of(0), np.full(2, 7.0)
        info = request.wait()
        received.append(sums.result.tolist())
        assert info.round == (1 if request is newer else 0)
    assert received == ([[3.0] * 2, [7.0] * 2] if first == "older" else [[10.0] * 2, [0.0] * 2])


def test_data_of_a_complete_call_is_handed_over_without_an_arrival(sums, engines):
    request = sums.contribute(np.ones(2))
    engines[0].handles[0].info = info_of(0, included=False)
    request.wait()
    recover(sums, engines, completed=1, newest=(info_of(0), False, None))
    assert [each.tolist() for each in engines[1].deposits] == [[1.0, 1.0]]
    assert not engines[1].handles


def test_stragglers_are_counted_on_under_their_numbers(sums, engines):
    engines[0].stragglers = [(0, 2, 1), (1, 5, 4)]
    sums.read_state((0,))
    sums.fill([sums.read_state((0,))], Deadline(None))
    sums.remake(sums._arguments, Deadline(None))
    sums._members = (1, 2)
    engines[1].stragglers = [(0, 3, 3), (1, 1, 1)]
    assert sorted(sums.statistics()["stragglers"]) == [(0, 2, 1), (1, 8, 4), (2, 1, 1)]


def test_a_call_that_was_interrupted_is_made_again(sums, engines):
    """The engine has the contribution, but the call raised before it had a request."""
    sums.contribute(np.ones(2))
    recover(sums, engines, contributions=1)
    recover(sums, engines)
    assert [handle.values.tolist() for handle in engines[2].handles] == [[1.0, 1.0]]
    assert sums.statistics()["contributions"] == 1


@pytest.mark.parametrize("dead_had_contributed", [True, False])
@pytest.mark.parametrize("missed", ["sum", "latest"])
def test_the_first_call_of_a_newcomer_is_of_the_round_that_the_donor_has_not_received(
    engines, missed, dead_had_contributed
):
    """Its own contribution counts in the next round, unless the dead rank's counts already."""
    donor = make(missed=missed)
    donor.contribute(np.ones(2))
    info = core.restored_round_info(4, 0, True, [0] if dead_had_contributed else [1], 2, 0, 0, False, 0, [])
    newest = (info, False, (np.full(2, 3.0).tobytes(), 1))
    sums = {"sum": newest[2]} if missed == "sum" else {}
    engines[0].state |= {"completed": 5, "missed": 1, "newest": newest, **sums}
    new = newcomer(donor, engines, missed=missed)
    result, info = new.allreduce(np.full(2, 7.0))
    assert info.round == 4
    assert not info.included
    assert result.tolist() == [3.0, 3.0]
    assert [handle.values.tolist() for handle in engines[-1].handles] == [[7.0, 7.0]] * (not dead_had_contributed)
    second = new.contribute(np.full(2, 8.0))
    engines[-1].handles[-1].info, engines[-1].result = info_of(0), np.full(2, 9.0)
    assert second.wait().round == 5
    assert new.result.tolist() == [9.0, 9.0]


def test_a_newcomer_takes_part_in_the_round_that_is_not_complete(engines):
    donor = make(missed="sum")
    donor.contribute(np.ones(2))
    engines[0].state |= {"completed": 5, "newest": (info_of(4), False, None)}
    new = newcomer(donor, engines, missed="sum")
    request = new.contribute(np.full(2, 7.0))
    engines[-1].handles[-1].info = info_of(0)
    assert request.wait().round == 5


@pytest.mark.parametrize("flushed", [True, False])
def test_a_newcomer_flushes_in_the_round_of_the_survivors(engines, flushed):
    """If they have flushed in a round that it receives, the engine flushes no further round."""
    donor = make(missed="sum")
    newest = (info_of(4), flushed, (np.full(2, 3.0).tobytes(), 1))
    engines[0].state |= {"completed": 5, "missed": 1, "newest": newest, "sum": newest[2]}
    new = newcomer(donor, engines, missed="sum")
    assert new.flush().round == (4 if flushed else 5)
    assert new.result.tolist() == [3.0 + (0 if flushed else 2.0)] * 2
    assert engines[-1].flushes == (0 if flushed else 1)
    request = new.contribute(np.full(2, 7.0))
    engines[-1].handles[-1].info = info_of(1)
    assert request.wait().round == 6


def received_by_donor(engines, missed="sum", late=False):
    """Return a donor whose application has received round 4, with [3, 3], and not used it; and a newcomer."""
    donor = make(missed=missed)
    request = donor.contribute(np.ones(2))
    engines[0].handles[0].info, engines[0].result = info_of(4), np.full(2, 3.0)
    request.wait()
    donor.unused = lambda: Unused(np.full(2, 3.0), 1, flushed=False)
    info = core.restored_round_info(4, 0, True, [1], 2, 0, 0, False, 0, [])
    engines[0].state |= {"completed": 5, "delivered": 1, "newest": (info, False, (np.full(2, 3.0).tobytes(), 1))}
    new = newcomer(donor, engines, missed=missed)
    engines[-1].is_late = late
    return donor, new


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("missed", ["sum", "latest"])
def test_a_newcomer_receives_what_the_donor_has_not_used(engines, missed, late):
    """Also if its contribution is late in the next round, whose result the call after it receives."""
    _, new = received_by_donor(engines, missed, late)
    request = new.contribute(np.full(2, 7.0))
    assert request.wait().round == 4
    if not (late and missed == "latest"):
        assert new.result.tolist() == [3.0, 3.0]
    assert engines[-1].tested == int(late and missed == "latest")  # otherwise the next call would lack the round
    second = new.contribute(np.full(2, 8.0))
    engines[-1].handles[-1].info, engines[-1].result = info_of(1), np.full(2, 9.0)
    assert second.wait().round == 6
    assert new.result.tolist() == [9.0, 9.0]


def test_the_donor_does_not_receive_it_again(engines):
    donor, _ = received_by_donor(engines)
    recover(donor, engines)
    request = donor.contribute(np.ones(2))
    engines[-1].handles[-1].info, engines[-1].result = info_of(0), np.full(2, 9.0)
    request.wait()
    assert donor.result.tolist() == [9.0, 9.0]


def test_a_flush_without_contributors_says_that_it_has_results(engines):
    """Otherwise `EagerMean.flush` would drop the result of a round that was complete before the flush."""
    _, new = received_by_donor(engines)
    empty = core.restored_round_info(0, 0, False, [], 2, 0, 0, False, 0, [])
    engines[-1].flush = lambda timeout: setattr(engines[-1], "result", np.zeros(2)) or empty
    assert new.flush().missed == 1
    assert new.result.tolist() == [3.0, 3.0]
    assert new.statistics()["missed"] == 1


@pytest.mark.parametrize("rounds", [0, 2])
@pytest.mark.parametrize("newcomers", [1, 2])
def test_a_newcomer_does_not_repeat_a_flush_that_the_donor_has_completed(engines, rounds, newcomers):
    """`rounds`: the flush, which was empty, and the round before, which was not used. A newcomer may be a donor."""
    donor = make()
    donor.unused = lambda: Unused(np.full(2, 3.0) if rounds else None, rounds, flushed=True)
    empty = core.restored_round_info(4, 0, False, [], 2, 0, 0, False, 0, [])
    engines[0].state |= {"completed": 5, "newest": (empty, True, None)}
    new = newcomer(donor, engines)
    if newcomers == 2:
        new = newcomer(new, engines)
    info = new.flush()
    assert engines[-1].flushes == 0
    assert info.round == 4
    assert info.missed == rounds // 2  # otherwise `EagerMean.flush` would drop the result
    assert new.result.tolist() == ([3.0, 3.0] if rounds else [0.0, 0.0])
    new.flush()
    assert engines[-1].flushes == 1


def test_a_newcomer_does_not_repeat_a_flush_that_a_recovery_has_completed(engines):
    """A round has followed it, so the newest one does not show it."""
    donor = make()
    donor.start_flush()
    state = {"completed": 6, "missed": 1, "flushed": info_of(4), "newest": (info_of(5), False, None)}
    engines[0].state |= state
    new = newcomer(donor, engines)
    new.flush()
    assert engines[-1].flushes == 0


def test_a_flush_after_the_next_contribution_is_another_one(engines):
    donor = make()
    donor.unused = lambda: Unused(None, 0, flushed=True)
    engines[0].state |= {"completed": 5, "newest": (info_of(4), True, None)}
    new = newcomer(donor, engines)
    new.contribute(np.ones(2))
    new.flush()
    assert engines[-1].flushes == 1


def test_a_whole_call_is_described_to_newcomers(sums, engines):
    sums.whole_call = WholeCall("mean", "<f8", 2, "AVG")
    call = json.loads(json.dumps(sums.read_state((1,))))["call"]
    with creating(Group(0, 2, (0, 0)), "other"):
        arguments = WholeCall(*call).arguments()
    assert (arguments.name, arguments.op, arguments.like.buffer.count) == ("mean", "AVG", 2)


def test_a_mean_over_the_members_is_divided_by_those_that_contributed():
    """Members may change between a round and its result."""
    given = []
    comm = SimpleNamespace(size=4, members=(0, 1, 2, 3), on_failure="continue")
    collective = SimpleNamespace(contribute=given.append, result=np.full(2, 8.0))
    comm.partial_allreduce = lambda *_, **__: collective
    mean = EagerMean(comm, np.zeros(2))
    mean.contribute(np.full(2, 4.0))
    comm.members = (0, 1, 3)
    assert mean.write_to(np.empty(2)).tolist() == [8.0, 8.0]
    assert given[0].tolist() == [1.0, 1.0]
