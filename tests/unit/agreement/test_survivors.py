"""The agreement of survivors, in random histories of messages, deaths and ranks that give up; and wrong ones of it."""

from __future__ import annotations

import itertools
import operator
import os
import pickle
import random
from collections import deque
from typing import TYPE_CHECKING

import pytest
from nightly import nightly_unless

from pycollectives.agreement import survivors
from pycollectives.agreement.survivors import Decision, Survivors

if TYPE_CHECKING:
    from collections.abc import Iterable

HISTORIES = 25_000 if os.environ.get("NIGHTLY") else 400
STEPS = 3


class Rank:
    """A program: comes to step after step; may give up, and comes again."""

    def __init__(self, kind: type[Survivors], rank: int, size: int, source: random.Random) -> None:
        self.machine = kind(rank, size)
        self.rank = rank
        self.objections = [None if source.random() < 0.8 else f"no {rank}" for _ in range(STEPS)]
        self.withdrawals = source.choice([0, 0, 1, 3])
        self.decided: list[Decision] = []
        self.is_in = False
        self.alive = True


class History:
    """One run. Channels keep the order; of what a rank sent before it died a part arrives, before or after the news."""

    def __init__(self, kind: type[Survivors], seed: int) -> None:
        self.source = random.Random(seed)
        self.size = self.source.choice([1, 2, 2, 3, 3, 4, 5])
        self.ranks = [Rank(kind, r, self.size, self.source) for r in range(self.size)]
        self.deaths = self.source.randrange(self.size)
        self.channels = {(a, b): deque() for a in range(self.size) for b in range(self.size) if a != b}
        self.unknown: set[tuple[int, int]] = set()  # who has not heard of whose death

    def send(self, rank: Rank, messages: list[survivors.Message]) -> None:
        for message in messages:
            for to in rank.machine.live:
                if to != rank.rank:
                    self.channels[rank.rank, to].append(message)

    def actions(self) -> list[tuple]:
        found: list[tuple] = []
        for (a, b), channel in self.channels.items():
            if channel and self.ranks[b].alive:
                found.append(("deliver", a, b))
        for rank in self.ranks:
            if not rank.alive or len(rank.decided) == STEPS:
                continue
            if not rank.is_in:
                found.append(("come", rank))
            elif rank.withdrawals and rank.machine.may_withdraw:
                found.append(("withdraw", rank))
        if self.deaths and self.may_die():
            found += [("die", rank, lost) for rank in self.ranks if rank.alive for lost in self.losses(rank)]
        found += [("hear", who, of) for who, of in self.unknown if self.ranks[who].alive]
        return found

    def may_die(self) -> bool:
        return self.source.random() < 0.1

    def losses(self, rank: Rank) -> Iterable[tuple[int, ...]]:
        """Return how many of its last messages to each other rank may not arrive."""
        return [tuple(self.source.randint(0, longest) for longest in self.on_their_way(rank))]

    def on_their_way(self, rank: Rank) -> list[int]:
        return [len(self.channels[rank.rank, to]) for to in range(self.size) if to != rank.rank]

    def act(self, what: str, *of: object) -> None:
        if what == "deliver":
            a, b = of
            message = self.channels[a, b].popleft()
            self.send(self.ranks[b], self.ranks[b].machine.receive(a, message))
            self.look(self.ranks[b])
        elif what == "hear":
            who, dead = of
            self.unknown.discard((who, dead))
            self.send(self.ranks[who], self.ranks[who].machine.died({dead}))
            self.look(self.ranks[who])
        elif what == "die":
            rank, losses = of
            self.deaths -= 1
            rank.alive = False
            others = [to for to in range(self.size) if to != rank.rank]
            for to, lost in zip(others, losses, strict=True):
                for _ in range(lost):
                    self.channels[rank.rank, to].pop()
                self.unknown.add((to, rank.rank))
        elif what == "come":
            (rank,) = of
            rank.is_in = True
            self.send(rank, rank.machine.take_part(rank.objections[len(rank.decided)]))
            self.look(rank)
        else:
            (rank,) = of
            rank.withdrawals -= 1
            rank.is_in = False
            self.send(rank, rank.machine.withdraw())
            self.check_nobody_counts_on(rank)

    def look(self, rank: Rank) -> None:
        decision = rank.machine.decision()
        if rank.alive and rank.is_in and decision is not None:
            step = len(rank.decided)
            rank.decided.append(decision)
            rank.is_in = False
            rank.machine.next_step()
            others = [other for other in self.ranks if other.alive and other is not rank]
            for other in others:
                assert len(other.decided) <= step or other.decided[step] == decision, "two decisions"
                assert len(other.decided) > step or other.is_in or other.rank not in decision.members, "gave up"
            objections = tuple(self.ranks[member].objections[step] for member in decision.members)
            assert decision.objections == objections, "the answer"
            assert rank.rank in decision.members

    def check_nobody_counts_on(self, rank: Rank) -> None:
        step = len(rank.decided)
        for other in self.ranks:
            if other.alive and len(other.decided) > step:
                assert rank.rank not in other.decided[step].members, "withdrew from a decision"

    def run(self) -> None:
        for _ in range(4000):
            actions = self.actions()
            if not actions:
                break
            what, *of = self.source.choices(actions, [3 if what == "deliver" else 1 for what, *_ in actions])[0]
            self.act(what, *of)
        self.check_end()

    def check_end(self) -> None:
        live = [rank for rank in self.ranks if rank.alive]
        assert all(len(rank.decided) == STEPS for rank in live), "stuck"
        assert len({tuple(rank.decided) for rank in live}) <= 1


@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(4))
def test_survivors_decide_the_same(part):
    for seed in range(HISTORIES):
        try:
            History(Survivors, part * HISTORIES + seed).run()
        except AssertionError as error:
            raise AssertionError(f"history {part * HISTORIES + seed}") from error


class Small(History):
    """A small case, for every order of messages, deaths and withdrawals. Rank 1 objects."""

    def __init__(self, size: int, deaths: int, withdrawals: int, kind: type[Survivors] = Survivors) -> None:
        super().__init__(kind, 0)
        self.size, self.deaths = size, deaths
        self.ranks = [Rank(kind, r, size, self.source) for r in range(size)]
        self.channels = {(a, b): deque() for a in range(size) for b in range(size) if a != b}
        for rank in self.ranks:
            rank.objections = ["no" if rank.rank == 1 else None] * STEPS
            rank.withdrawals = withdrawals if rank.rank == 0 else 0
            rank.decided = [None] * (STEPS - 1)  # only the last step is taken
            rank.machine.step = STEPS - 1

    def may_die(self) -> bool:
        return True

    def losses(self, rank: Rank) -> Iterable[tuple[int, ...]]:
        return itertools.product(*(range(longest + 1) for longest in self.on_their_way(rank)))

    def key(self) -> object:
        """Return what distinguishes this state from others."""
        of_first = operator.itemgetter(0)
        ranks = []
        for rank in self.ranks:
            machine = rank.machine
            here = machine._at(STEPS - 1)
            said = tuple(sorted(here.ready.items(), key=of_first)), tuple(sorted(here.commits.items(), key=of_first))
            own = rank.alive, rank.is_in, rank.withdrawals, len(rank.decided), machine.step, machine._attempt
            ranks.append((own, frozenset(machine.dead), said, here.decision))
        channels = tuple(map(tuple, self.channels.values()))
        return tuple(ranks), channels, frozenset(self.unknown), self.deaths


def explore(case: Small) -> int:
    """Try every order; return the number of states."""
    seen, waiting = {case.key()}, [pickle.dumps(case)]
    while waiting:
        state = waiting.pop()
        number = len(pickle.loads(state).actions())
        if number == 0:
            pickle.loads(state).check_end()
        for chosen in range(number):
            following = pickle.loads(state)
            what, *of = following.actions()[chosen]
            following.act(what, *of)
            if (key := following.key()) not in seen:
                seen.add(key)
                waiting.append(pickle.dumps(following))
    return len(seen)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("size", "deaths", "withdrawals"),
    nightly_unless(lambda of: of[0] == 2, [(2, 0, 2), (2, 1, 2), (3, 0, 1), (3, 1, 0), (3, 2, 0)]),
)
def test_every_order_of_a_small_case(size, deaths, withdrawals):
    states = explore(Small(size, deaths, withdrawals))
    print(f"{size} ranks, {deaths} deaths, {withdrawals} withdrawals: {states} states")
    assert states > 10


class DecidesWhenReady(Survivors):
    """Does not wait until all have committed."""

    def _advance(self):
        sent = super()._advance()
        here = self._at(self.step)
        if here.decision is None and self._rank in here.commits:
            here.decision = here.commits[self._rank]
            sent.append(survivors.Message(self.step, "decided", decision=here.decision))
        return sent


class TellsNobody(Survivors):
    """Does not pass on what another has decided."""

    def receive(self, source, message):
        return [m for m in super().receive(source, message) if m is not message]


class BelievesTheDead(Survivors):
    """Takes messages of ranks whose death it knows."""

    def receive(self, source, message):
        dead, self.dead = self.dead, self.dead - {source}
        try:
            sent = super().receive(source, message)
        finally:
            self.dead = dead
        return sent


class MayAlwaysWithdraw(Survivors):
    may_withdraw = property(lambda self: self.decision() is None)


class OfAnyAttempt(Survivors):
    """Counts what was committed to before somebody gave up and came again."""

    def take_part(self, objection=None):
        self._attempt = 0
        return super().take_part(objection)


class TakesTheFirstAnswer(Survivors):
    """Does not ask whether all agree."""

    def receive(self, source, message):
        return super().receive(source, message._replace(objection=None) if message.kind == "ready" else message)


MUTANTS = [
    DecidesWhenReady,
    TellsNobody,
    BelievesTheDead,
    MayAlwaysWithdraw,
    OfAnyAttempt,
    TakesTheFirstAnswer,
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_wrong_ones_are_found(mutant):
    for seed in range(20_000):
        try:
            History(mutant, seed).run()
        except AssertionError:
            return
    pytest.fail("not found")
