"""What a rank that replaces a dead one makes, with played survivors; real ranks die in launch/test_spares.py."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

from pycollectives.membership import joining
from pycollectives.membership.joining import Joining, NotProvidedError, Plan, Sender
from pycollectives.membership.whole_calls import WholeCall


class EndedError(Exception):
    """The process would have ended."""


class PlayedCollective:
    def __init__(self, number):
        self.number = number
        self.done = []
        self.recoverable = self

    def fill(self, states, deadline):
        self.done.append("fill")

    def take_position(self, position):
        self.done.append(position)

    def remake(self, arguments, deadline):
        self.done.append("remake")

    def leave(self):
        self.done.append("leave")


@pytest.fixture
def joined(monkeypatch):
    """Return a function that begins to join survivors with these states of collectives, and with a plan."""

    def give_up(self, error):
        raise EndedError(str(error))

    monkeypatch.setattr(Joining, "give_up", give_up)
    monkeypatch.setattr(joining, "described", lambda arguments: {"call": "service", "name": arguments})

    def begin(
        states, calls, *, created, states_to_restore=0, pending=None, messages=(), positions="pqr", is_closing=False
    ):
        made = []

        def enter(collective, arguments):
            made.append(collective)
            return collective

        context = SimpleNamespace(
            created=0,
            enter=enter,
            communicator=SimpleNamespace(name="world", rank=1, leave=lambda: made.append("left")),
        )
        context.checked = lambda service, arguments: "mean" if service == "partial_allreduce" else arguments()
        membership = SimpleNamespace(
            collected=lambda own, deadline: [json.loads(json.dumps(states), object_hook=with_numbers)],
            install=lambda deadline: made.append("installed"),
            joined=lambda: made.append("joined"),
        )
        job = SimpleNamespace(members=(0, 1), joined=(1,))
        new = Joining(membership, context, job)
        plan = Plan(calls, created, pending, states_to_restore, is_closing=is_closing)
        received = {"plan": [plan], "position": list(positions), "state": messages}
        monkeypatch.setattr(new, "_receive", lambda kind: received[kind].pop(0))
        monkeypatch.setattr(joining, "PartialAllreduce", PlayedWhole)
        new.begin()
        new._limit.cancel()
        return new, made

    return begin


class PlayedWhole(PlayedCollective):
    arguments = SimpleNamespace(service="partial_allreduce")

    def __init__(self, context, arguments, deadline):
        super().__init__(context.created)


def with_numbers(pairs):
    return {int(key) if key.isdigit() else key: value for key, value in pairs.items()}


def creation(name):
    return SimpleNamespace(
        service="service",
        arguments=lambda: name,
        build=lambda arguments, deadline: PlayedCollective(arguments),
        call=name,
    )


MEAN = WholeCall("mean", "<f8", 2, "AVG")


def of(name):
    return {"call": "service", "name": name}


def test_a_whole_call_that_the_donor_has_completed_is_made_and_left_without_the_program(joined):
    """Others may still be in it. The program makes the collectives before and after it, with their positions."""
    open_one = {"left": False, "call": None}
    states = {0: open_one, 4: {"left": False, "call": MEAN}, 5: open_one}
    new, made = joined(states, {0: of("sums"), 5: of("gradients")}, created=6)
    assert new.make(creation("sums")).done == ["fill", "p", "remake"]
    assert made[1].number == 4
    assert made[1].done == ["fill", "remake", "leave"]
    assert made[1].whole_call == MEAN  # for a newcomer whose donor this rank becomes
    assert new.make(creation("gradients")).done == ["fill", "q", "remake"]
    assert made[3:] == ["installed", "joined"]


@pytest.mark.parametrize("created", [4, 5])
def test_a_whole_call_in_which_the_donor_is_is_made_by_the_program(joined, created):
    """It is in it, or creates its collective, which another rank has created."""
    states = {4: {"left": False, "call": MEAN}}
    new, made = joined(states, {4: of("mean")} if created == 5 else {}, created=created)
    assert made == []
    assert new.make(creation("mean")).done == ["fill", *(["p"] if created == 5 else []), "remake"]
    assert made[1:] == ["installed", "joined"]


@pytest.mark.parametrize("is_last", [False, True])
def test_a_collective_is_made_when_it_is_next(joined, is_last):
    """The program asks for it in advance, for example in the constructor of an optimizer."""
    numbers = {"sums": 0, "later": 1} if is_last else {"later": 0, "sums": 1}
    states = {number: {"left": False} for number in numbers.values()}
    new, made = joined(states, {number: of(name) for name, number in numbers.items()}, created=2)
    new.make_if_open("service", "later", lambda: new.make(creation("later")))
    assert made == ([] if is_last else made[:1])
    new.make(creation("sums"))
    assert [each.number for each in made[:2]] == sorted(numbers, key=numbers.get)  # played ones have names
    assert made[2:] == ["installed", "joined"]


def test_a_collective_that_is_not_open_is_not_made(joined):
    new, made = joined({0: {"left": False}}, {0: of("sums")}, created=1)
    new.make_if_open("service", "later", lambda: new.make(creation("later")))
    new.make(creation("sums"))
    assert made[1:] == ["installed", "joined"]


def test_a_collective_that_the_donor_is_creating_has_no_position(joined):
    new, _ = joined({0: {"left": False}}, {0: of("sums")}, created=0, positions=[None])
    assert new.make(creation("sums")).done == ["fill", "remake"]


def test_another_collective_ends_it(joined):
    new, _ = joined({0: {"left": False}}, {0: of("sums")}, created=1)
    with pytest.raises(EndedError, match="expected the collective that the survivors made next"):
        new.make(creation("others"))


def test_a_first_creation_that_differs_from_the_donor_s_ends_it(joined):
    """Without a collective nothing else shows a difference, and all ranks would raise MismatchError."""
    new, made = joined({}, {}, created=0, pending="broadcast")
    assert made == ["installed", "joined"]
    new.check_first("broadcast")
    with pytest.raises(EndedError, match="expected the survivors' pending call first, broadcast, got agree"):
        new.check_first("agree")


def test_a_newcomer_that_comes_while_all_close_ends_with_them(joined):
    """The donor has completed the last call, and sends states, which are received so that it can continue."""
    messages = ["model", "step"]
    states = {4: {"left": False, "call": MEAN}}
    with pytest.raises(SystemExit):
        joined(states, {}, created=5, states_to_restore=2, messages=messages, is_closing=True)
    assert messages == []


def test_states_are_restored_in_order_before_it_joins(joined):
    restored = []
    new, made = joined({}, {}, created=0, states_to_restore=2, messages=["model", "step"])
    new.restore(restored.append)
    assert made == []
    new.restore(restored.append)
    new.restore(restored.append)  # a later call of the program has none
    assert restored == ["model", "step"]
    assert made == ["installed", "joined"]


@pytest.mark.parametrize("state", [lambda: {}["missing"], lambda: lambda: None], ids=["raises", "has no pickle"])
def test_a_state_that_cannot_be_provided_ends_only_the_newcomer(joined, state):
    sent = []
    sender = Sender(SimpleNamespace(), [])
    sender.send = lambda kind, value: sent.append((kind, value))
    sender.send_state(state)
    ((kind, value),) = sent
    assert kind == "state"
    assert isinstance(value, NotProvidedError)
    new, _ = joined({}, {}, created=0, states_to_restore=1, messages=[value])
    with pytest.raises(EndedError, match="`provide` failed on a survivor"):
        new.restore(lambda _: None)


def test_a_whole_call_has_the_arguments_of_its_collective():
    from pycollectives.arguments import Group, creating

    with creating(Group(0, 2, (0, 0)), "other"):
        arguments = MEAN.arguments()
    assert arguments.name == "mean"
    assert np.dtype(arguments.like.buffer.dtype) == np.float64
