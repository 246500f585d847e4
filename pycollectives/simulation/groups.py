"""Simulate workers that average in groups, with the real group generators and model workers.

A worker computes, sends a request to the generator, and performs the granted groups until its request is answered. A
group is performed when all its members have reached it. Messages between workers and generator take time. Messages from
one worker, and messages to one worker, stay in order.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ..groups import StaticGroups, node_of_each

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..groups import GeneratedGroups


class Machine(Protocol):
    """The object that answers requests: `_core.GroupGenerator`, or a substitute."""

    def request(self, worker: int, now: float | None = None) -> Sequence[Any]: ...
    def acknowledge(self, worker: int, sequence: int, now: float | None = None) -> Sequence[Any]: ...
    def leave(self, worker: int) -> None: ...


class Event(NamedTuple):
    """An event at a worker: "ask", "begin" or "end" of a group, "answered", "leave"."""

    time: float
    what: str
    worker: int
    group: int = -1  # the group's sequence number
    members: tuple[int, ...] = ()


@dataclass
class _Worker:
    steps: int = 0  # completed synchronizations
    asked: float | None = None  # the time since which it waits
    waited: float = 0.0
    gone: bool = False
    granted: deque[Any] = field(default_factory=deque)
    here: bool = False  # it has reached the first of `granted`


class GroupModel:
    """Simulates workers and the machine that forms their groups, in virtual time.

    `compute(worker, step)` returns the seconds of computation before a synchronization, or None if the worker leaves.
    `preduce(members)` returns the seconds that a P-Reduce takes, and `delay()` the seconds that a message takes.
    `record`: whether to keep every event.
    """

    def __init__(
        self,
        machine: Machine,
        size: int,
        compute: Callable[[int, int], float | None],
        *,
        preduce: Callable[[Sequence[int]], float] = lambda members: 0.0,
        delay: Callable[[], float] = lambda: 0.0,
        record: bool = False,
    ) -> None:
        self.machine = machine
        self.workers = [_Worker() for _ in range(size)]
        self.groups: list[tuple[int, ...]] = []  # performed groups, in the order of their ends
        self.conflicts = 0
        self.events: list[Event] = []
        self.now = 0.0
        self._compute = compute
        self._preduce = preduce
        self._delay = delay
        self._record = record
        self._agenda: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._entries = 0
        self._last_to = [0.0] * size
        self._last_from = [0.0] * size
        self._present: dict[int, int] = {}  # number of members that have reached a group, by its sequence number

    def run(self, until: float = float("inf")) -> None:
        """Run until no event is left, or until virtual time `until`."""
        for worker in range(len(self.workers)):
            self._work(worker)
        while self._agenda and self._agenda[0][0] <= until:
            self.now, _, action, arguments = heapq.heappop(self._agenda)
            action(*arguments)

    # --- The agenda --------------------------------------------------------------------------------------------------

    def _at(self, time: float, action: Callable[..., None], *arguments: Any) -> None:
        self._entries += 1  # events of the same time happen in the order of entry
        heapq.heappush(self._agenda, (time, self._entries, action, arguments))

    def _note(self, what: str, worker: int, group: int = -1, members: tuple[int, ...] = ()) -> None:
        if self._record:
            self.events.append(Event(self.now, what, worker, group, members))

    def _send(self, last: list[float], worker: int, action: Callable[..., None], *arguments: Any) -> None:
        last[worker] = max(last[worker], self.now + self._delay())
        self._at(last[worker], action, *arguments)

    # --- Workers -----------------------------------------------------------------------------------------------------

    def _work(self, worker: int) -> None:
        seconds = self._compute(worker, self.workers[worker].steps)
        if seconds is None:
            self.workers[worker].gone = True
            self._note("leave", worker)
            self._send(self._last_from, worker, self.machine.leave, worker)
            self._come(worker)
        else:
            self._at(self.now + seconds, self._ask, worker)

    def _ask(self, worker: int) -> None:
        self.workers[worker].asked = self.now
        self._note("ask", worker)
        self._send(self._last_from, worker, self._requested, worker)
        self._come(worker)

    def _come(self, worker: int) -> None:
        """Let a worker reach its first granted group, if it is in a synchronization or has left."""
        w = self.workers[worker]
        if w.here or not w.granted or (w.asked is None and not w.gone):
            return
        grant = w.granted[0]
        w.here = True
        present = self._present.get(grant.sequence, 0) + 1
        self._present[grant.sequence] = present
        if present == len(grant.members):
            for member in grant.members:
                self._note("begin", member, grant.sequence, grant.members)
            self._at(self.now + self._preduce(grant.members), self._performed, grant)

    def _performed(self, grant: Any) -> None:
        del self._present[grant.sequence]
        self.groups.append(grant.members)
        self.conflicts += grant.conflicts
        for member in grant.members:
            w = self.workers[member]
            w.granted.popleft()
            w.here = False
            self._note("end", member, grant.sequence, grant.members)
            self._send(self._last_from, member, self._acknowledged, member, grant.sequence)
            if w.asked is not None and grant.answers(member):
                w.waited += self.now - w.asked
                w.asked = None
                w.steps += 1
                self._note("answered", member, grant.sequence)
                self._work(member)
            else:
                self._come(member)

    # --- The machine -------------------------------------------------------------------------------------------------

    def _requested(self, worker: int) -> None:
        self._start(self.machine.request(worker, self.now))

    def _acknowledged(self, worker: int, sequence: int) -> None:
        self._start(self.machine.acknowledge(worker, sequence, self.now))

    def _start(self, started: Sequence[Any]) -> None:
        for grant in started:
            for member in grant.members:
                self._send(self._last_to, member, self._granted, member, grant)

    def _granted(self, worker: int, grant: Any) -> None:
        self.workers[worker].granted.append(grant)
        self._come(worker)


class _Scripted(NamedTuple):
    """A grant issued by a machine whose groups are known in advance."""

    sequence: int
    members: tuple[int, ...]
    conflicts: int = 0

    def answers(self, member: int) -> bool:
        return True


class _StaticMachine:
    """Grants each worker the group of its step, as a generator would; real static groups need no messages."""

    def __init__(self, group_of: Callable[[int, int], tuple[int, ...]], size: int) -> None:
        self._group_of = group_of
        self._step = [0] * size
        self._asking: dict[tuple[int, tuple[int, ...]], int] = {}
        self._sequence = 0

    def request(self, worker: int, now: float | None = None) -> list[_Scripted]:
        del now
        step = self._step[worker]
        self._step[worker] += 1
        group = self._group_of(worker, step)
        asking = self._asking.pop((step, group), 0) + 1
        if asking < len(group):
            self._asking[step, group] = asking
            return []
        self._sequence += 1
        return [_Scripted(self._sequence, group)]

    def acknowledge(self, worker: int, sequence: int, now: float | None = None) -> list[_Scripted]:
        del worker, sequence, now
        return []

    def leave(self, worker: int) -> None:
        del worker


@dataclass(frozen=True)
class GroupSummary:
    """Statistics of a simulated program."""

    iterations_per_s: float  # of a worker, the mean over workers
    iterations_of: tuple[int, ...]  # completed synchronizations, by worker
    sync_fraction: float  # share of the workers' time in which they wait in a synchronization or perform one
    waited: tuple[float, ...]  # seconds, by worker
    conflicts: float  # mean number of earlier groups that a group had to wait for
    groups: tuple[tuple[int, ...], ...]  # the performed ones, in order


def machine_of(generator: GeneratedGroups | StaticGroups | None, size: int, ranks_per_node: int) -> Machine:
    """Return the machine that answers requests for `generator`; if it is None, for an allreduce of all workers."""
    if generator is None:
        workers = tuple(range(size))
        return _StaticMachine(lambda rank, step: workers, size)
    if isinstance(generator, StaticGroups):
        return _StaticMachine(lambda rank, step: generator.group_of(rank, step, size), size)
    generator.check(size)
    return generator.machine(node_of_each(size, ranks_per_node))


def simulate_groups(
    generator: GeneratedGroups | StaticGroups | None,
    size: int,
    ranks_per_node: int = 4,
    *,
    seconds: float = 400.0,
    work: float = 0.2,
    jitter: float = 0.02,
    slowdown: Mapping[int, float] | None = None,
    preduce: float = 0.0,
    delay: float = 0.0,
    seed: int = 0,
) -> GroupSummary:
    """Simulate `size` workers that average in groups or, if `generator` is None, in an allreduce of all workers.

    `seconds` of virtual time are simulated. An iteration has `work` seconds of computing, and takes longer by a
    uniformly random share, up to `jitter`. `slowdown`: for each worker, the number of iteration times added to each
    iteration (Ripples 7.4). `preduce`, `delay`: seconds of a P-Reduce and of a message.

    >>> slow = simulate_groups(None, 4, seconds=12.0, work=0.1, jitter=0.0, slowdown={0: 5.0})
    >>> round(slow.iterations_per_s, 2), slow.iterations_of
    (1.67, (20, 20, 20, 20))
    """
    rng = random.Random(seed)
    added = slowdown or {}
    factors = [work * (1.0 + added.get(worker, 0.0)) for worker in range(size)]
    model = GroupModel(
        machine_of(generator, size, ranks_per_node),
        size,
        lambda worker, step: factors[worker] * (1.0 + jitter * rng.random()),
        preduce=lambda members: preduce if len(members) > 1 else 0.0,
        delay=lambda: delay,
    )
    model.run(until=seconds)
    waited = [w.waited + (0.0 if w.asked is None else seconds - w.asked) for w in model.workers]
    return GroupSummary(
        iterations_per_s=sum(w.steps for w in model.workers) / size / seconds,
        iterations_of=tuple(w.steps for w in model.workers),
        sync_fraction=sum(waited) / size / seconds,
        waited=tuple(waited),
        conflicts=model.conflicts / max(1, len(model.groups)),
        groups=tuple(model.groups),
    )
