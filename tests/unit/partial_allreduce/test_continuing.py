"""What a rank takes along after a death, with a played engine; real ranks die in launch/test_continue.py."""

from types import SimpleNamespace

import numpy as np
import pytest

from pycollectives.arguments import Group, creating
from pycollectives.partial_allreduce.arguments import PartialAllreduceArguments
from pycollectives.partial_allreduce.continuing import ContinuingAllreduce
from pycollectives.partial_allreduce.eager_mean import EagerMean
from pycollectives.support.deadline import Deadline
from pycollectives.support.native import core

COUNTERS = dict.fromkeys(("included", "late", "missed", "overrun", "waited", "contributions", "memory_bytes"), 0)


def info_of(number, *, included=True):
    return core.restored_round_info(number, 0, included, [0, 1], 2, 0, 0, False, 0, [])


class PlayedCore:
    """An engine's collective, whose requests complete when `info` is set."""

    def __init__(self):
        self.handles = []
        self.deposits = []
        self.result = np.zeros(2)
        self.rounds = 0
        self.state = {"completed": 0, "newest": None, "contributions": 0, "delivered": 0, "taken": 0, "lacking": 0}
        self.state |= {"missed": 0, "sum": None, "flushed": None}
        self._sum = None

    def contribute(self, values):
        handle = SimpleNamespace(late=False, values=values.copy(), info=None)
        handle.wait = lambda timeout: handle.info
        handle.completed_info = lambda: handle.info
        self.handles.append(handle)
        return handle

    def recovery_state(self):
        return self.state | {"contributions": len(self.handles)}

    def statistics(self):
        return dict(COUNTERS)

    def continue_from(self, lacking, missed, values, divisor):
        if values is not None:
            self._sum = np.frombuffer(values) / divisor

    def receive_pending(self):
        self.result = np.zeros(2) if self._sum is None else self._sum

    def deposit(self, values):
        self.deposits.append(values.copy())


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
    membership = SimpleNamespace(epoch=0, is_recovering=False, is_joining=False, is_installed=True, failed=None)
    context = SimpleNamespace(
        membership=membership,
        communicator=SimpleNamespace(rank=0, size=2),
        rank=0,
        timeout=None,
        limit=lambda limit: limit,
    )
    with creating(Group(0, 2, (0, 0)), "sum"):
        return ContinuingAllreduce(context, PartialAllreduceArguments(np.zeros(2)), Deadline(None))


def recover(collective, engines, **state):
    engines[-1].state |= state
    own = collective.read_state((1,))
    collective.fill([own], Deadline(None))
    collective.remake(collective._arguments, Deadline(None))
    collective.resume()


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


def test_a_call_that_was_interrupted_is_made_again(sums, engines):
    """The engine has the contribution, but the call raised before it had a request."""
    sums.contribute(np.ones(2))
    recover(sums, engines, contributions=1)
    recover(sums, engines)
    assert [handle.values.tolist() for handle in engines[2].handles] == [[1.0, 1.0]]
    assert sums.statistics()["contributions"] == 1


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
