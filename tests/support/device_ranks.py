"""Ranks of a device board, as small programs: generators that yield while they wait.

The same programs run in one process, where a seed draws who goes on, and as processes of an MPI job.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from devices import bits

from pycollectives.support.native import core

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devices import Host

testing = core.testing
COUNT = 150
"""Elements: enough for parts at several multiples of 64, and one that is none."""


@dataclass(frozen=True)
class Job:
    """What is reduced."""

    dtype: str = "float32"
    op: str = "SUM"
    late: str = "accumulate"

    def values(self, rng: np.random.Generator, *shape: int) -> np.ndarray:
        """Of which the sum, if they are floats, depends on its order."""
        draw = rng.standard_normal if self.dtype.startswith("float") else lambda shape: rng.integers(-99, 99, shape)
        scale = 10.0 ** rng.integers(-3, 4, (*shape, 1))
        return (draw((*shape, COUNT)) * scale).astype(self.dtype)

    def expected(self, contributions: list[list[np.ndarray]]) -> np.ndarray:
        """By the loops of the host: of each rank what it has given, in that order."""
        terms = []
        for given in contributions:
            term = testing.load(self.dtype, self.op, given[0])
            for later in given[1:]:
                testing.accumulate(self.dtype, self.op, term, later)
            terms.append(term)
        total = terms[0]
        for term in terms[1:]:
            testing.reduce(self.dtype, self.op, total, term)
        return testing.store(self.dtype, self.op, total, len(terms) if self.op == "AVG" else 1)

    def board(self, control, machine: Host, ranks: int, local: int, *, latest: bool = False):
        return testing.DeviceBoard(
            control, machine.executor, ranks=list(range(10, 10 + ranks)), local=local, dtype=self.dtype, op=self.op,
            count=COUNT, latest=latest,
        )  # fmt: skip


@dataclass
class Member:
    """One rank, with arrays and a stream of its own, as an application has them."""

    machine: Host
    board: object
    job: Job
    slot: int
    reads: int
    """Results that it reads at most."""
    read: int = 0
    """... and that it has read."""
    expected: list[np.ndarray] = field(default_factory=list)

    def __post_init__(self):
        self.handle = self.machine.stream_of_caller()
        self.stream = self.machine.executor.stream_of_caller(self.handle)
        self.values = self.machine.put(np.zeros(COUNT, self.job.dtype))
        self.out = self.machine.put(np.zeros(COUNT, self.job.dtype))
        self.seen = self.machine.put(np.zeros((self.reads, COUNT), self.job.dtype))

    def fill(self, address: int, what: float) -> None:
        self.machine.write(self.handle, address, np.full(COUNT, what, self.job.dtype))

    def contribute(self, values: np.ndarray, ticket: int = 0) -> Iterator[None]:
        """The application makes the values late, and overwrites them at once."""
        self.machine.write(self.handle, self.values.address, values)
        while not self.board.contribute(self.values.address, self.stream, late=self.job.late, ticket=ticket):
            self.board.advance()
            yield
        self.fill(self.values.address, 77)

    def try_to_read(self, ticket: int):
        """Ticket and contributors if there is a result, which the application then reads without waiting."""
        self.fill(self.out.address, 88)
        found = self.board.result(ticket, self.out.address, self.stream)
        if found is not None:
            size = self.job.values(np.random.default_rng(0)).nbytes
            self.stream.copy(self.seen.address + self.read * size, self.out.address, size)
            self.read += 1
        return found

    def check(self) -> None:
        """When all work is done: bit for bit what was expected."""
        seen = self.seen.get()
        for number, expected in enumerate(self.expected):
            np.testing.assert_array_equal(bits(seen[number]), bits(expected), f"rank {self.slot}, result {number}")

    def free(self) -> None:
        for block in (self.values, self.out, self.seen):
            block.free()
        self.board = self.stream = None


def in_groups(member: Member, groups: list[list[int]], values: np.ndarray) -> Iterator[None]:
    """P-Reduces: ticket t is of the t-th group, and whoever comes last begins. `values` are [group, rank, element]."""
    for number, group in enumerate(groups):
        if member.slot not in group:
            continue
        ticket = number + 1
        yield from member.contribute(values[number, member.slot], ticket)
        while member.board.fold(ticket, group, group, len(group)) is False:
            member.board.advance()
            yield
        while (found := member.try_to_read(ticket)) is None:
            member.board.fold(ticket, group, group, len(group))  # a part that nobody has begun
            member.board.advance()
            yield
        assert found == (ticket, group)
        member.expected.append(member.job.expected([[values[number, rank]] for rank in group]))


def end(member: Member) -> Iterator[None]:
    """Close, and free what the application has."""
    while not member.board.close():
        yield
