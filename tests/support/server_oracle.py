"""Properties of every history of a simulated parameter server, and random scripts.

Under every synchronization, each gradient is used once, discarded, or left in an accumulator; an update adds exactly
its terms; no worker waits indefinitely; a missing worker has been silent for as long as the rule requires.
"""

from dataclasses import dataclass, field

from pycollectives.servers.sync import MindFlayer, Ringleader
from pycollectives.support.native import core


@dataclass
class Script:
    """Workers by rows: seconds and values of each push."""

    work: list
    values: list = field(default_factory=list)
    slope: float = 0.0
    pushes: list = field(default_factory=list)
    vanishes: list = field(default_factory=list)
    absences: list = field(default_factory=list)
    gives_up: bool = True
    latency: float = 0.0

    def __post_init__(self):
        """Fill in defaults: every worker makes all pushes, with distinct values."""
        columns = self.columns
        self.values = self.values or [[w * columns + j + 1 for j in range(columns)] for w in range(self.workers)]
        self.pushes = self.pushes or [columns] * self.workers
        self.vanishes = self.vanishes or [columns] * self.workers

    @property
    def workers(self):
        return len(self.work)

    @property
    def columns(self):
        return len(self.work[0])

    @property
    def is_complete(self):
        """Whether all workers stay until they have made their pushes, the same number each."""
        return not self.absences and len(set(self.pushes)) == 1 and min(self.vanishes) >= self.columns


def run(sync, script, *, stuck=""):
    """Return a history after checking the properties of every history; `stuck`: the workers that wait indefinitely."""
    history = core.simulate_server(
        sync=sync.engine_arguments(),
        workers=script.workers,
        max_pushes=script.columns,
        work=[time for row in script.work for time in row],
        values=[float(value) for row in script.values for value in row],
        slope=script.slope,
        pushes=script.pushes,
        vanishes=script.vanishes,
        absences=script.absences,
        gives_up=script.gives_up,
        latency=script.latency,
        max_events=1_000_000,
    )
    assert history["stuck"] == stuck
    if stuck:
        return history
    check_each_gradient(history, script, keeps=isinstance(sync, Ringleader))
    check_weights(history, script)
    check_missing(history, sync)
    return history


def check_each_gradient(history, script, *, keeps):
    """Each worker makes its pushes in order; each is used in one update, or waits for it, unless it was discarded."""
    used, updates_of = set(), {}
    made = [0] * script.workers
    version = 0
    for what, _, *entry in history["entries"]:
        if what == "push":
            worker, push, of, delay, verdict = entry
            assert push == made[worker]
            made[worker] += 1
            assert of + delay == version
            if verdict == "used":
                used.add((worker, push))
        elif what == "update":
            for worker, push, _, weight in entry[1]:
                assert (worker, push) in used
                assert weight > 0
                updates_of.setdefault((worker, push), []).append(version)
            version += 1
    gathered = [(worker, push) for worker, push, _, _ in history["gathered"]]
    assert len(set(gathered)) == len(gathered)
    assert used == {*gathered, *updates_of}
    for versions in updates_of.values():
        assert versions == [*range(versions[0], versions[0] + len(versions))]
        assert len(versions) <= (script.workers if keeps else 1)
    assert keeps or not updates_of.keys() & {*gathered}
    assert history["clocks"] == made
    for worker, number in enumerate(made):
        assert number == min(script.pushes[worker], script.vanishes[worker])


def check_weights(history, script):
    """The weights equal, bit for bit, the result of a serial program with the updates' terms."""
    weights, before = 0.0, [0.0]
    versions = {}
    for what, _, *entry in history["entries"]:
        if what == "push":
            versions[entry[0], entry[1]] = entry[2]
        elif what == "update":
            after, terms = entry
            sums = {}
            for worker, push, delay, weight in terms:
                assert versions[worker, push] + delay == len(before) - 1
                gradient = script.values[worker][push] + script.slope * before[versions[worker, push]]
                sums[worker] = (sums.get(worker, (0.0, weight))[0] + gradient, weight)
            assert [*sums] == sorted(sums)
            total = 0.0
            for gradient, weight in sums.values():
                total += weight * gradient
            weights += total
            assert after == weights
            before.append(weights)


def check_missing(history, sync):
    """A worker is missing only after `patience` times the longest interval, and 1 s, without a push."""
    replay = Replay(len(history["clocks"]))
    for entry in history["entries"]:
        if entry[0] == "missing":
            known = [interval for interval in replay.interval if interval is not None]
            known += sync.seconds if isinstance(sync, MindFlayer) else ()
            silent = entry[1] - max(replay.heard[entry[2]], replay.begun)
            assert silent >= 0.999 * max(sync.patience * max(known), 1)
            assert replay.is_present[entry[2]]
            assert not replay.waits[entry[2]]
        replay.add(entry)


class Replay:
    """The server's knowledge of its workers, from the entries of a history."""

    def __init__(self, workers):
        self.is_present = [True] * workers
        self.waits = [False] * workers
        self.clock = [0] * workers
        self.pushed = [None] * workers
        self.released = [0.0] * workers
        self.heard = [0.0] * workers
        self.interval = [None] * workers
        self.begun = 0.0

    @property
    def present(self):
        """The workers that are present."""
        return [worker for worker, is_present in enumerate(self.is_present) if is_present]

    def add(self, entry):
        """Add the next entry."""
        what, time, *more = entry
        if what == "superstep":
            self.begun = time
        if what in ("update", "superstep"):
            return
        worker = more[0]
        if what == "push":
            self.clock[worker] += 1
            self.waits[worker] = True
            if more[4] != "given up":
                self.pushed[worker] = self.heard[worker] = time
                self.interval[worker] = time - self.released[worker]
        elif what == "release":
            self.waits[worker] = False
            self.released[worker] = self.heard[worker] = time
        else:
            self.is_present[worker] = what == "present"


def times(draw, workers, pushes, kind):
    """Return the computing times, worker by push."""
    if kind == "constant":
        return [[draw.uniform(1, 1.5)] * pushes for _ in range(workers)]
    if kind == "one slow":
        slow = draw.randrange(workers)
        return [[3.0 if worker == slow else 1.0] * pushes for worker in range(workers)]
    if kind == "equal":
        return [[1.0] * pushes for _ in range(workers)]
    if kind == "random slow":
        return [[6.0 if draw.random() < 1 / workers else 1.0 for _ in range(pushes)] for _ in range(workers)]
    if kind == "heavy":
        return [[min(draw.paretovariate(0.7), 1e4) for _ in range(pushes)] for _ in range(workers)]
    return [[draw.choice([0.0, 0.01, 0.1, 1.0, 10.0, 100.0]) for _ in range(pushes)] for _ in range(workers)]


KINDS = ["constant", "one slow", "equal", "random slow", "heavy", "wild"]


def random_script(draw, sync):
    """Return a script with any speeds; half of the scripts have workers that leave, return, vanish, or push less."""
    workers = draw.choice([1, 2, 2, 3, 4, 5, 8, 12])
    columns = draw.randint(1, 40)
    script = Script(times(draw, workers, columns, draw.choice(KINDS)), latency=draw.choice([0.0, 0.0, 0.3]))
    if draw.random() < 0.3:
        script.slope = -0.125
    if isinstance(sync, MindFlayer):
        script.gives_up = draw.random() < 0.7
    if draw.random() < 0.5:
        return script
    for worker in range(workers):
        if draw.random() < 0.3:
            script.pushes[worker] = draw.randint(0, columns)
        if draw.random() < 0.2:
            script.vanishes[worker] = draw.randint(0, columns)
        for push in range(columns):
            if draw.random() < 0.04:
                script.absences.append((worker, push, draw.choice([0.0, 1.0, 5.0, 50.0])))
    return script
