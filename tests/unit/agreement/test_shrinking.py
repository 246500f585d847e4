"""`shrink` of ranks as threads. The MPI of this file lets ranks die, and interrupts them, in all of its calls."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import deque
from types import SimpleNamespace

import pytest
from mpi4py import MPI

import pycollectives as pc
from pycollectives.agreement import shrinking
from pycollectives.support.deadline import Deadline
from pycollectives.support.errors import TransportError

HISTORIES = 2 * int(os.environ.get("PYC_TEST_CASES", "8"))
LIMIT = 10.0


class World:
    """Ranks, their channels, and who is dead."""

    def __init__(self, seed: int) -> None:
        self.source = random.Random(seed)
        self.size = self.source.choice([2, 3, 4, 5])
        self.changed = threading.Condition(threading.RLock())
        self.channels = {(a, b): deque() for a in range(self.size) for b in range(self.size)}
        self.dead: set[int] = set()
        self.entered: dict[int, set[int]] = {}  # by number of the shrink
        self.shrunk: dict[int, tuple[int, ...]] = {}
        self.ends = time.monotonic() + LIMIT
        self.deadly = self.source.choice([0.0, 0.02, 0.1])
        self.interrupting = self.source.choice([0.0, 0.0, 0.05])
        self.is_left = False  # a rank has given up, and the others may not wait for it but with their limits

    def live(self) -> set[int]:
        return set(range(self.size)) - self.dead


class Rank:
    """A communicator, its engine and its duplicate for one rank, as `Shrinking` uses them."""

    transport = "mpi"
    name = "played"

    def __init__(self, world: World, rank: int) -> None:
        self.world = world
        self.rank, self.size = rank, world.size
        self.source = random.Random(world.source.random())
        self.known: set[int] = set()
        self.acknowledged: set[int] = set()
        self.shrinks = 0
        self._engine = self
        self._engines: list[object] = []
        self._arguments = (None, None, None, None)
        self.made: tuple[int, ...] | None = None
        self.failure: BaseException | None = None

    # an engine, and a communicator

    def mpi_duplicate(self):
        return self

    def acknowledge_failed(self):
        with self.world.changed:
            self.acknowledged |= self.known
            return sorted(self.known)

    def check_usable(self):
        pass

    def abort(self):
        return 0

    def _made_within(self, comm, limit, arguments):
        assert arguments == self._arguments
        assert limit is None or limit >= 1
        self.happens(4.0)  # it has many calls of MPI
        with self.world.changed:
            if not set(comm.members) <= self.world.live():
                self.known |= self.world.dead
                raise self.source.choice([pc.RankFailedError, TransportError])("played")
        return SimpleNamespace(size=comm.size, members=comm.members, abort=lambda: 0, _engines=[])

    # a duplicate

    def happens(self, weight: float = 1.0):
        """Die, or be interrupted; the last rank does not die."""
        with self.world.changed:
            if time.monotonic() > self.world.ends:
                raise TimeoutError
            dies = self.source.random() < weight * self.world.deadly and len(self.world.live()) > 1
            if dies:
                self.world.dead.add(self.rank)
                self.world.changed.notify_all()
        if dies:
            threading.Event().wait()  # for good: an exception would be caught
        if self.source.random() < weight * self.world.interrupting:
            raise KeyboardInterrupt

    def isend(self, content, to, tag):
        self.happens()
        with self.world.changed:
            if to in self.world.dead and self.source.random() < 0.7:
                self.known.add(to)
                raise MPI.Exception(MPI.ERR_PROC_FAILED)
            self.world.channels[self.rank, to].append(content)
        return SimpleNamespace(Test=lambda: True)

    def improbe(self, source, tag, status):
        self.happens(0.02)
        with self.world.changed:
            self.known |= {rank for rank in self.world.dead if self.source.random() < 0.02}
            if self.known - self.acknowledged:
                raise MPI.Exception(MPI.ERR_PROC_FAILED_PENDING)
            arrived = [rank for rank in range(self.size) if self.world.channels[rank, self.rank]]
            if not arrived:
                return None
            status.source = self.source.choice(arrived)
            content = self.world.channels[status.source, self.rank].popleft()
        return SimpleNamespace(recv=lambda: content)

    def Shrink(self):  # noqa: N802
        """Wait for all ranks that are alive, however long, as MPI does."""
        world = self.world
        number, self.shrinks = self.shrinks, self.shrinks + 1
        with world.changed:
            world.entered.setdefault(number, set()).add(self.rank)
            world.changed.notify_all()
            while number not in world.shrunk:
                if world.live() <= world.entered[number]:
                    world.shrunk[number] = tuple(sorted(world.live()))
                    world.changed.notify_all()
                elif not world.changed.wait(world.ends - time.monotonic()):
                    raise TimeoutError
            members = world.shrunk[number]
        return SimpleNamespace(members=members, size=len(members), Set_name=lambda name: None, Revoke=lambda: None)

    def run(self):
        """As a program that repeats an interrupted call."""
        shrink = shrinking.Shrinking(self)
        while self.made is None:
            try:
                self.made = shrink.run(Deadline(self.source.choice([0.02, 0.2]))).members
            except KeyboardInterrupt:
                if self.source.random() < 0.3:
                    self.world.is_left = True
                    return
            except pc.StallError:
                if self.world.is_left:
                    return
            except BaseException as error:
                self.failure = error
                return


@pytest.fixture(autouse=True)
def mpi(monkeypatch):
    """In place of the calls of MPI that make communicators."""
    monkeypatch.setattr(shrinking, "give_back_turn", lambda comm: None)
    monkeypatch.setattr(shrinking, "shrunk_by_mpi", lambda comm: comm.Shrink())


def check(world, seed):
    """Fail unless the survivors of a history make the same communicator."""
    ranks = [Rank(world, rank) for rank in range(world.size)]
    threads = [threading.Thread(target=rank.run, daemon=True) for rank in ranks]
    for thread in threads:
        thread.start()
    while any(t.is_alive() for t, rank in zip(threads, ranks, strict=True) if rank.rank in world.live()):
        assert time.monotonic() < world.ends, (seed, "stuck", world.dead)
        time.sleep(1e-3)
    assert [rank.failure for rank in ranks] == [None] * world.size, seed
    made = {rank.made for rank in ranks if rank.rank in world.live()}
    if world.is_left:
        made.discard(None)
    assert len(made) <= 1, (seed, made)
    assert all(world.live() <= set(members) for members in made), (seed, made)


@pytest.mark.parametrize("part", range(4))
def test_survivors_make_the_same_communicator(part):
    for seed in range(part * HISTORIES, (part + 1) * HISTORIES):
        check(World(seed), seed)


class FailsOnce(Rank):
    """Cannot make the first communicator, so that all try again after their limit."""

    tried = 0

    def _made_within(self, comm, limit, arguments):
        self.tried += 1
        if self.tried == 1:
            raise pc.RankFailedError("played")
        return super()._made_within(comm, limit, arguments)


def test_the_time_in_which_mpi_makes_a_communicator_is_not_limited(monkeypatch):
    def slowly(comm):
        made = comm.Shrink()
        time.sleep(0.5 + 0.05 * comm.rank)
        return made

    monkeypatch.setattr(shrinking, "shrunk_by_mpi", slowly)
    world = World(0)
    world.deadly = world.interrupting = 0.0
    ranks = [FailsOnce(world, rank) for rank in range(world.size)]

    def run_once(rank):
        rank.made = shrinking.Shrinking(rank).run(Deadline(0.4)).members

    threads = [threading.Thread(target=run_once, args=[rank]) for rank in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert {rank.made for rank in ranks} == {tuple(range(world.size))}


def test_a_rank_that_is_interrupted_again_while_it_withdraws():
    """The others wait for its messages: they are sent before the interruption is raised."""
    for seed in range(4 * HISTORIES):
        world = World(seed)
        world.deadly, world.interrupting = 0.0, 0.2
        check(world, seed)
