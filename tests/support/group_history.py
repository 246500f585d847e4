"""Properties of every history of workers and a group generator, and generators that break them on purpose."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from pycollectives.simulation.groups import GroupModel
from pycollectives.support.native import core

GENERATORS = {
    "random": {},
    "random, bridged": {"connectivity": 2},
    "random without buffer": {"group_buffer": False},
    "division": {"global_division": True},
    "division, threshold": {"global_division": True, "slowdown_threshold": 2},
    "inter-intra": {"global_division": True, "inter_intra": True},
    "smart": {"global_division": True, "inter_intra": True, "slowdown_threshold": 4},
    "smart, bridged": {"global_division": True, "inter_intra": True, "slowdown_threshold": 4, "connectivity": 2},
    "punctual": {"punctual": True},
    "punctual, bridged": {"punctual": True, "connectivity": 2, "tolerance": 0.3},
}


class Watched:
    """A machine whose grants are checked as they are made: their locks, and that no member has left."""

    def __init__(self, machine, clock=True):
        self.machine = machine
        self.clock = clock
        self.running = {}  # by worker: the groups that it must perform and has not acknowledged
        self.left_at = {}  # by worker: groups generated before it left
        self.members = {}
        self.findings = []

    def request(self, worker, now=None):
        return self.watch(self.machine.request(worker, now if self.clock else None))

    def acknowledge(self, worker, sequence, now=None):
        if self.running.pop(worker, None) != sequence:
            self.findings.append(f"worker {worker} acknowledges group {sequence}, which it was not performing")
        return self.watch(self.machine.acknowledge(worker, sequence, now if self.clock else None))

    def leave(self, worker):
        self.left_at[worker] = self.machine.generated
        self.machine.leave(worker)

    def watch(self, grants):
        for grant in grants:
            if list(grant.members) != sorted(set(grant.members)):
                self.findings.append(f"group {grant.sequence}: its members are {grant.members}")
            if grant.sequence in self.members:
                self.findings.append(f"group {grant.sequence} starts twice")
            self.members[grant.sequence] = grant.members
            for member in grant.members:
                if member in self.running:
                    self.findings.append(
                        f"group {grant.sequence} starts while worker {member} performs group {self.running[member]}"
                    )
                self.running[member] = grant.sequence
                if grant.sequence >= self.left_at.get(member, float("inf")):
                    self.findings.append(f"worker {member} has left and is in group {grant.sequence}")
        return grants


def check(events, watched, *, one_group_per_answer):
    """Return the violations in a complete history."""
    found = list(watched.findings)
    asking, performing, newest, left, since = {}, {}, {}, set(), Counter()
    begun = {}
    for event in events:
        worker, group = event.worker, event.group
        match event.what:
            case "ask":
                if worker in asking or worker in left:
                    found.append(f"worker {worker} asks twice or after it has left")
                asking[worker] = event.time
                since[worker] = 0
            case "leave":
                left.add(worker)
            case "begin":
                if worker in performing:
                    found.append(f"worker {worker} performs groups {performing[worker]} and {group} at once")
                if worker not in asking and worker not in left:
                    found.append(f"worker {worker} performs group {group} while it computes")
                if group < newest.get(worker, -1):
                    found.append(f"worker {worker} performs group {group} after group {newest[worker]}")
                if begun.setdefault(group, event.time) != event.time:
                    found.append(f"group {group} begins twice")
                performing[worker] = newest[worker] = group
                since[worker] += 1
            case "end":
                if performing.pop(worker, None) != group:
                    found.append(f"worker {worker} ends group {group} without having begun it")
            case "answered":
                if asking.pop(worker, None) is None:
                    found.append(f"worker {worker} is answered without having asked")
                if one_group_per_answer and since[worker] != 1:
                    found.append(f"worker {worker} performs {since[worker]} groups for one request")
    ends = Counter((e.worker, e.group) for e in events if e.what == "end")
    due = Counter((member, group) for group, members in watched.members.items() for member in members)
    found += [f"worker {worker} is not answered: stuck since {time:.3f}" for worker, time in asking.items()]
    found += [f"worker {worker} does not perform group {group} once" for worker, group in due - ends]
    if not watched.machine.finished:
        found.append(f"not finished: {watched.machine.describe()}")
    return found


@dataclass
class Case:
    """A random history that depends only on the seed."""

    generator: str
    seed: int

    def __post_init__(self):
        rng = random.Random(f"{self.generator} {self.seed}")
        self.rng = rng
        self.workers = rng.choice([2, 3, 4, 5, 7, 8, 11, 16, rng.randint(2, 64)])
        self.size = rng.randint(2, 8)
        per_node = rng.choice([1, 2, 3, 4, 8, self.workers])
        places = [worker // per_node for worker in range(self.workers)]
        if rng.random() < 0.3:
            rng.shuffle(places)
        numbers = {}
        self.node_of = [numbers.setdefault(place, len(numbers)) for place in places]
        self.clock = rng.random() < 0.7
        self.steps = [rng.choice([0, 1, 3, rng.randint(0, 10)]) for _ in range(self.workers)]
        if rng.random() < 0.5:
            self.steps = [rng.randint(1, 8)] * self.workers
        slow = rng.choice([1.0, 2.0, 6.0, 50.0])
        self.factor = [slow if rng.random() < 0.2 else 1.0 for _ in range(self.workers)]
        self.burst = rng.choice([0.0, 0.0, 0.1])
        self.noise = rng.choice([0.0, 0.02, 1.0])
        self.longest_delay = rng.choice([0.0, 0.001, 0.1, 3.0])
        self.longest_preduce = rng.choice([0.0, 0.01, 1.0])

    def compute(self, worker, step):
        if step >= self.steps[worker]:
            return None
        pause = 20.0 if self.rng.random() < self.burst else 1.0
        return self.factor[worker] * pause * (1.0 + self.noise * self.rng.random())

    def machine(self):
        return core.GroupGenerator(self.node_of, size=self.size, seed=self.seed, **GENERATORS[self.generator])

    def findings(self, machine=None):
        watched = Watched(machine or self.machine(), self.clock)
        model = GroupModel(
            watched,
            self.workers,
            self.compute,
            preduce=lambda members: self.longest_preduce * self.rng.random(),
            delay=lambda: self.longest_delay * self.rng.random(),
            record=True,
        )
        try:
            model.run()
        except ValueError as error:
            return [f"misuse: {error}"]
        buffered = GENERATORS[self.generator].get("group_buffer", True)
        return check(model.events, watched, one_group_per_answer=buffered)


class Granted(NamedTuple):
    sequence: int
    members: tuple[int, ...]
    initiator: int
    conflicts: int

    def answers(self, member):
        return True


class Literal:
    """Section 4.1 of Ripples word for word: a lock vector, a queue of pending groups scanned in order, random groups.

    It has the group buffer. `flaw` breaks it on purpose.
    """

    def __init__(self, workers, size, seed, flaw=None):
        self.rng = random.Random(seed)
        self.size = size
        self.flaw = flaw
        self.present = set(range(workers))
        self.lock = [False] * workers
        self.buffer = [[] for _ in range(workers)]
        self.pending = []
        self.running = {}  # sequence: members who have not acknowledged
        self.generated = 0

    @property
    def finished(self):
        return not self.present and not self.pending and not self.running

    def describe(self):
        return f"{self.running} run, {self.pending} wait"

    def request(self, worker, now=None):
        if self.buffer[worker]:
            return []
        others = sorted(self.present - {worker})
        return self.take(worker, [worker, *self.rng.sample(others, min(self.size - 1, len(others)))])

    def take(self, worker, members):
        earlier = {sequence for member in members for sequence in self.buffer[member]}
        grant = Granted(self.generated, tuple(sorted(members)), worker, len(earlier))
        self.generated += 1
        for member in members:
            self.buffer[member].append(grant.sequence)
        self.pending.append(grant)
        if self.flaw == "loses a pending group" and earlier:
            self.pending.pop()
        return self.scan()

    def scan(self):
        blocked, started, waiting = set(), [], []
        for grant in self.pending:
            free = not any(self.lock[member] for member in grant.members) or self.flaw == "ignores the locks"
            overtakes = not blocked.isdisjoint(grant.members)
            if free and (not overtakes or self.flaw == "lets a pending group overtake"):
                started.append(grant)
                self.running[grant.sequence] = set(grant.members)
                for member in grant.members:
                    self.lock[member] = True
            else:
                blocked.update(grant.members)
                waiting.append(grant)
        self.pending = waiting
        if self.flaw == "tells one member too few":
            return [g._replace(members=g.members[:-1]) if len(g.members) > 3 else g for g in started]
        if self.flaw == "starts a group twice":
            return started * 2
        return started

    def acknowledge(self, worker, sequence, now=None):
        if sequence in self.running:
            self.running[sequence].discard(worker)
            if not self.running[sequence]:
                del self.running[sequence]
        self.buffer[worker].remove(sequence)
        self.lock[worker] = False
        if self.flaw == "releases all at the first acknowledgement":
            for other in self.running.pop(sequence, ()):
                self.lock[other] = False
        return self.scan() if self.flaw != "does not look at the queue" else []

    def leave(self, worker):
        if self.flaw != "forgets who has left":
            self.present.discard(worker)


FLAWS = (
    "loses a pending group",
    "ignores the locks",
    "lets a pending group overtake",
    "tells one member too few",
    "starts a group twice",
    "releases all at the first acknowledgement",
    "does not look at the queue",
    "forgets who has left",
)
