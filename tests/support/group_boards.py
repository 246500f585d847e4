"""The group boards of a node in one process, and ranks that arrive, copy and leave in every order, step by step."""

import math

import numpy as np

from pycollectives import _testing

EXPECTED = {"SUM": np.sum, "MAX": np.max, "MIN": np.min, "AVG": np.mean}


class Node:
    """A node of ranks without engines. Each performs its groups in order; which one moves next is drawn."""

    def __init__(self, ranks, count, dtype, op="AVG", weighted=False, pieces=1, values=None, executor=None):
        wide = dtype.startswith("int") and op == "AVG"
        accumulator_bytes = 8 if wide else max(4, np.dtype(dtype).itemsize)
        slot = math.ceil(max(count, 1) / pieces)
        self.boards = _testing.GroupBoards(ranks=ranks, slot_bytes=slot * accumulator_bytes, executor=executor)
        self.count, self.dtype, self.op, self.weighted = count, dtype, op, weighted
        self.values = [np.arange(count).astype(dtype) % 7 + rank for rank in range(ranks)] if values is None else values
        self.todo = [[] for _ in range(ranks)]  # (ticket, members, whether this rank is absent), in order
        self.running = [None] * ranks
        self.given = {}  # by (ticket, rank): values before
        self.taken = {}  # ... and after

    def read(self, rank):
        """Return a rank's current values."""
        return self.values[rank].copy()

    def address(self, values):
        """Return the address of values for a board; None: there are no values."""
        return values

    def plan(self, ticket, members, absent=()):
        for rank in members:
            self.todo[rank].append((ticket, sorted(members), rank in absent))

    def step(self, rank):
        """Begin the next group, or advance the current one; return whether this rank still has work."""
        if self.running[rank] is None:
            if not self.todo[rank]:
                return False
            self.running[rank] = ticket, members, absent = self.todo[rank].pop(0)
            values = None if absent else self.values[rank]
            if not absent:
                self.given[ticket, rank] = self.read(rank)
            weight = 1 / (1 + rank) if self.weighted else None
            self.boards.start(
                rank,
                members,
                ticket,
                self.address(values),
                count=self.count,
                dtype=self.dtype,
                op=self.op,
                weight=weight,
            )
        elif self.boards.advance(rank):
            ticket, _, absent = self.running[rank]
            if not absent:
                self.taken[ticket, rank] = self.read(rank)
            self.running[rank] = None
        return True

    def run(self, rng):
        """Run until no rank has work. Some ranks are drawn seldom, others often."""
        ranks = range(len(self.values))
        weights = [rng.choice([1, 10, 100]) for _ in ranks]
        busy = set(ranks)
        for _ in range(1_000_000):
            rank = rng.choices(ranks, weights)[0]
            if rank in busy and not self.step(rank):
                busy.discard(rank)
            if not busy:
                return
        raise AssertionError(f"no end: {self.running}")


class DeviceNode(Node):
    """The same with values and slots on a device, whose work is done late."""

    def __init__(self, machine, ranks, count, dtype, op="AVG", weighted=False, pieces=1, values=None):
        host = Node(ranks, count, dtype, op, weighted, pieces, values).values
        blocks = [machine.put(np.asarray(each, dtype)) for each in host]
        super().__init__(ranks, count, dtype, op, weighted, pieces, blocks, machine.executor)
        self.machine = machine

    def read(self, rank):
        return self.values[rank].get()

    def address(self, values):
        return None if values is None else values.address

    def end(self, rng):
        """Let ranks leave in any order, maybe during work; check that nothing is left and nothing was misused."""
        ranks = list(range(len(self.values)))
        for _ in range(1_000_000):
            rank = rng.choice(ranks)
            if self.boards.release(rank):
                ranks.remove(rank)
            if not ranks:
                break
        assert not ranks
        self.machine.finish()
        for block in self.values:
            block.free()
        self.boards = None
        self.values = [None] * len(self.values)
        machine, self.machine = self.machine, None
        machine.end()


def check(node, plan):
    """Check that all members have the same bits: the reduction of the values of the members that took part."""
    for ticket, members, absent in plan:
        present = [rank for rank in members if rank not in absent]
        results = [node.taken[ticket, rank] for rank in present]
        if not present:
            continue
        given = np.array([node.given[ticket, rank] for rank in present], np.float64)
        if node.weighted:
            expected = np.average(given, axis=0, weights=[1 / (1 + rank) for rank in present])
        else:
            expected = EXPECTED[node.op](given, axis=0)
        for result in results:
            assert result.tobytes() == results[0].tobytes()
        if node.dtype.startswith("int"):
            np.testing.assert_array_equal(results[0], expected.astype(node.dtype))
        else:
            np.testing.assert_allclose(results[0], expected, rtol=2e-3 if node.dtype == "float16" else 1e-5)


def drawn_plan(rng, ranks, groups):
    """Draw groups in one order, with gaps in their tickets and members that are absent."""
    ticket, plan = 0, []
    for _ in range(groups):
        ticket += rng.choice([1, 1, 5])
        members = sorted(rng.sample(range(ranks), rng.randint(2, ranks)))
        plan.append((ticket, members, [rank for rank in members if rng.random() < 0.1]))
    return plan
