"""A reduction among ranks whose executors may do work late and in any order: what a board does, with messages left out.

Each rank is a small program: what it waits for is what it would learn from its own polls and from the others' messages.
The programs advance in an order drawn from the seed, and on the simulated driver so does the work of all streams.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import pytest
from devices import HAS_CUDA, Host, Simulated, bits, wait

from pycollectives.support.native import core

testing = core.testing

RANKS = 4
COUNT = 37
ROUNDS = 3
ORDERS = int(os.environ.get("PYC_CASES", "2000"))
STEPS = 200_000

KINDS = {"host": Host}
if HAS_CUDA:
    KINDS["simulated driver"] = Simulated
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


@dataclass
class Job:
    """What is reduced, and what has come of it."""

    dtype: str = "float32"
    op: str = "SUM"
    late: bool = False
    """Whether each rank gives twice per round."""

    def values(self, seed: int) -> np.ndarray:
        """[round, rank, times, count]: the sum of floats depends on its order."""
        rng = np.random.default_rng(seed)
        draw = rng.standard_normal if self.dtype.startswith("float") else lambda shape: rng.integers(-99, 99, shape)
        return (draw((ROUNDS, RANKS, 2, COUNT)) * 10.0 ** rng.integers(-3, 4, (ROUNDS, RANKS, 2, 1))).astype(self.dtype)

    def expected(self, values: np.ndarray, absent: int) -> np.ndarray:
        """By the loops of the host, in the order of ranks."""
        present = [rank for rank in range(RANKS) if rank != absent]
        terms = []
        for rank in present:
            term = testing.load(self.dtype, self.op, values[rank, 0])
            if self.late:
                testing.accumulate(self.dtype, self.op, term, values[rank, 1])
            terms.append(term)
        total = terms[0]
        for term in terms[1:]:
            testing.reduce(self.dtype, self.op, total, term)
        return testing.store(self.dtype, self.op, total, len(present) if self.op == "AVG" else 1)


class Rank:
    """One rank's program: a generator that yields while it waits."""

    def __init__(self, machine, job: Job, slot: int):
        self.machine, self.job, self.slot = machine, job, slot
        self.arena = testing.Arena(machine.executor, dtype=job.dtype, op=job.op, count=COUNT, slots=RANKS, slot=slot)
        self.handle = machine.stream_of_caller()
        self.stream = machine.executor.stream_of_caller(self.handle)
        self.values = machine.put(np.zeros(COUNT, job.dtype))
        self.outs = [machine.put(np.zeros(COUNT, job.dtype)) for _ in range(ROUNDS)]
        self.seen = [machine.put(np.zeros(COUNT, job.dtype)) for _ in range(ROUNDS)]
        self.done = {"deposited": 0, "reduced": 0, "given": 0}

    def program(self, ranks: list[Rank], values: np.ndarray, absences: list[int], order: list[int]):
        members = list(range(RANKS))
        part = -(-COUNT // RANKS)
        first = min(self.slot * part, COUNT)
        length = min(part, COUNT - first)

        def all_have(what: str, number: int) -> bool:
            return all(rank.done[what] >= number for rank in ranks)

        for number in range(1, ROUNDS + 1):
            mine = values[number - 1, self.slot]
            self.machine.write(self.handle, self.values.address, mine[0])
            self.arena.deposit(self.values.address, self.stream)
            if self.job.late:
                self.machine.write(self.handle, self.values.address, mine[1])
                self.arena.accumulate(self.values.address, self.stream)
            # The caller's next values may be on their way at once.
            self.machine.write(self.handle, self.values.address, np.full(COUNT, 77, self.job.dtype))
            while not self.arena.deposited():
                yield
            self.done["deposited"] = number
            while not (all_have("deposited", number) and all_have("given", number - 1)):
                yield
            contributors = [r for r in order if r != absences[number - 1]]
            self.arena.reduce(contributors, members, first, length)
            while not self.arena.reduced():
                yield
            self.done["reduced"] = number
            while not all_have("reduced", number):
                yield
            divisor = len(contributors) if self.job.op == "AVG" else 1
            out = self.outs[number - 1].address
            self.machine.write(self.handle, out, np.full(COUNT, 88, self.job.dtype))  # before what is given
            self.arena.give(out, divisor, self.stream)
            self.stream.copy(self.seen[number - 1].address, out, COUNT * mine.itemsize)  # the caller reads it
            while not self.arena.given():
                yield
            self.done["given"] = number
        while not all_have("given", ROUNDS):
            yield


def run(kind, job: Job, seed: int) -> None:
    """All ranks, once; raises AssertionError if any result is wrong or anything was misused."""
    rng = np.random.default_rng(seed)
    values = job.values(seed)
    absences = [int(r) for r in rng.integers(0, RANKS, ROUNDS)]
    machine = kind(seed)
    ranks = [Rank(machine, job, slot) for slot in range(RANKS)]
    for a in ranks:
        for b in ranks:
            if a is not b:
                a.arena.attach(b.slot, b.arena.share())
    running = {}
    for rank in ranks:
        order = [int(r) for r in rng.permutation(RANKS)]  # in which this rank has heard of the others
        running[rank.slot] = rank.program(ranks, values, absences, order)
    for _ in range(STEPS):
        if not running:
            break
        slot = int(rng.choice(list(running)))
        if next(running[slot], "ended") == "ended":
            del running[slot]
    assert not running, "a hang"
    if machine.executor.kind == "cuda":
        machine.driver.finish()
    for rank in ranks:
        for number in range(ROUNDS):
            expected = job.expected(values[number], absences[number])
            for block in (rank.outs[number], rank.seen[number]):
                np.testing.assert_array_equal(bits(block.get()), bits(expected), f"rank {rank.slot}, round {number}")
    end(machine, ranks)


def end(machine, ranks: list[Rank]) -> None:
    """Everything ends in its order; a rank detaches what it may never have attached."""
    if machine.executor.kind == "cuda":
        machine.driver.finish()
    for rank in ranks:
        for slot in range(RANKS):
            if slot != rank.slot:
                rank.arena.detach(slot)
        wait(rank.arena.advance)
    for rank in ranks:
        for block in (rank.values, *rank.outs, *rank.seen):
            block.free()
        rank.arena = rank.stream = None
    machine.end()


JOBS = [
    Job(),
    Job("float64", "AVG"),
    Job("float16"),
    Job("float16", late=True),
    Job("int32", "AVG", late=True),
    Job("float64", "MAX", late=True),
    Job("int64", "PROD"),
]


@every_kind
@pytest.mark.parametrize("job", JOBS, ids=str)
def test_every_result_is_the_fold_in_the_order_of_ranks(kind, job):
    for seed in range(4):
        run(kind, job, seed)


@pytest.mark.skipif(not HAS_CUDA, reason="built with PYC_CUDA=OFF")
@pytest.mark.parametrize("part", range(8))
def test_in_every_order_of_streams(part):
    """In all, 2000 orders of the simulated driver's work, half of them with late contributions."""
    for case in range(part, ORDERS, 8):
        try:
            run(Simulated, Job(late=case % 2 == 1), 1000 + case)
        except AssertionError as error:
            raise AssertionError(f"simulated driver, seed {1000 + case}: {error}") from error


@pytest.mark.skipif(not HAS_CUDA, reason="built with PYC_CUDA=OFF")
@pytest.mark.parametrize("seed", range(20))
def test_a_mapping_ends_when_its_work_is_done(seed):
    machine = Simulated(seed)
    ranks = [Rank(machine, Job(), slot) for slot in range(RANKS)]
    ranks[0].arena.attach(1, ranks[1].arena.share())
    for rank in ranks[:2]:
        rank.arena.deposit(rank.values.address, rank.stream)
    wait(ranks[1].arena.deposited)
    ranks[0].arena.reduce([0, 1], [0, 1], 0, COUNT)
    ranks[0].arena.detach(1)  # at once, perhaps before its work
    wait(ranks[0].arena.advance)
    assert ranks[0].arena.reduced()
    end(machine, ranks)


@pytest.mark.skipif(not HAS_CUDA, reason="built with PYC_CUDA=OFF")
@pytest.mark.parametrize("nth", [1, 3, 9, 20, 40])
def test_an_illegal_address_ends_every_wait(nth):
    """Whatever work it is in: the next poll says so, and it does not poll for ever."""
    machine = Simulated(nth)
    ranks = [Rank(machine, Job(), slot) for slot in range(RANKS)]
    machine.driver.fault(nth)
    with pytest.raises(RuntimeError, match=r"CUDA: \w+: CUDA_ERROR_ILLEGAL_ADDRESS \(simulated driver\)"):
        for _ in range(ROUNDS * 20):
            for rank in ranks:
                rank.arena.deposit(rank.values.address, rank.stream)
                wait(rank.arena.deposited)
    with pytest.raises(RuntimeError, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
        ranks[0].arena.given()
