"""The device board with all ranks of a node in one process; which of them goes on is drawn by a seed.

On the simulated driver so is the order of the work of all streams. tests/mpi/test_device_board.py has ranks that are
processes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from device_ranks import COUNT, Job, Member, end, in_groups
from devices import HAS_CUDA, Host, Simulated, needs_cuda

from pycollectives.support.native import core

testing = core.testing

RANKS = 4
ORDERS = int(os.environ.get("PYC_CASES", "2000"))
STEPS = 200_000
NOT_SUPPORTED = 801

KINDS = {"host": Host}
if HAS_CUDA:
    KINDS["simulated driver"] = Simulated
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


class Node:
    """All ranks of a node."""

    def __init__(self, machine, job: Job, *, reads: int, ranks: int = RANKS, latest: bool = False):
        self.machine = machine
        control = testing.DeviceBoardControl()
        boards = [job.board(control, machine, ranks, slot, latest=latest) for slot in range(ranks)]
        for board in boards:
            board.attach()
        self.members = [Member(machine, board, job, slot, reads) for slot, board in enumerate(boards)]

    def run(self, programs: list, rng: np.random.Generator) -> None:
        running = dict(enumerate(programs))
        for _ in range(STEPS):
            if not running:
                return
            slot = int(rng.choice(list(running)))
            if next(running[slot], "ended") == "ended":
                del running[slot]
        raise AssertionError(f"a hang of ranks {sorted(running)}")

    def end(self, rng: np.random.Generator) -> None:
        """All ranks close, in any order, while streams still work; nothing is left, and nothing was misused."""
        self.run([end(member) for member in self.members], rng)
        self.machine.finish()
        for member in self.members:
            member.check()
            member.free()
        self.members.clear()
        self.machine.end()


def groups_of(rng: np.random.Generator, number: int) -> list[list[int]]:
    sizes = rng.integers(1, RANKS + 1, number)
    return [sorted(int(r) for r in rng.permutation(RANKS)[:size]) for size in sizes]


def run_groups(kind, job: Job, seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = groups_of(rng, 5)
    values = job.values(rng, len(groups), RANKS)
    node = Node(kind(seed), job, reads=len(groups))
    node.run([in_groups(member, groups, values) for member in node.members], rng)
    node.end(rng)


@dataclass
class Rounds:
    """What a board of partial collectives would know: who has given what, and which round has taken it."""

    job: Job
    pending: list[list[np.ndarray]] = field(default_factory=lambda: [[] for _ in range(RANKS)])
    taken_by: list[int] = field(default_factory=lambda: [0] * RANKS)
    results: list[np.ndarray] = field(default_factory=list)
    contributors: list[list[int]] = field(default_factory=list)

    @property
    def next_ticket(self) -> int:
        return len(self.results) + 1

    def began(self, ranks: list[int]) -> None:
        ticket = self.next_ticket
        self.results.append(self.job.expected([self.pending[rank] for rank in ranks]))
        self.contributors.append(ranks)
        for rank in ranks:
            self.pending[rank] = []
            self.taken_by[rank] = ticket


def solo(member: Member, rounds: Rounds, values: np.ndarray, rng: np.random.Generator):
    """A rank that starts a round with whoever has contributed, unless a round has taken its values already."""
    slot = member.slot
    for given in values:
        for times in given[: rng.integers(1, 3)]:
            yield from member.contribute(times)
            if member.job.late == "replace":
                rounds.pending[slot] = []
            rounds.pending[slot].append(times)
            for _ in range(rng.integers(0, 9)):  # it may come to wait, and be taken
                member.board.advance()
                yield
        while rounds.pending[slot]:
            waiting = member.board.waiting()
            ticket = rounds.next_ticket
            if slot in waiting and member.board.fold(ticket, waiting, list(range(RANKS)), int(rng.integers(1, 4))):
                rounds.began(waiting)
            member.board.advance()
            yield
        ticket = rounds.taken_by[slot]
        while (found := member.try_to_read(ticket)) is None:
            member.board.fold(ticket, rounds.contributors[ticket - 1], [], 1)
            member.board.advance()
            yield
        assert found[0] >= ticket
        assert found[1] == rounds.contributors[found[0] - 1]
        member.expected.append(rounds.results[found[0] - 1])


def run_solo(kind, job: Job, seed: int) -> None:
    rng = np.random.default_rng(seed)
    calls = 3
    node = Node(kind(seed), job, reads=calls, latest=True)
    rounds = Rounds(job)
    values = job.values(rng, RANKS, calls, 2)
    node.run([solo(member, rounds, values[member.slot], rng) for member in node.members], rng)
    node.end(rng)


JOBS = [
    Job(),
    Job("float64", "AVG"),
    Job("float16"),
    Job("float16", late="replace"),
    Job("int32", "AVG"),
    Job("float64", "MAX"),
    Job("int64", "PROD", late="replace"),
]


@every_kind
@pytest.mark.parametrize("run", [run_groups, run_solo])
@pytest.mark.parametrize("job", JOBS, ids=str)
def test_every_result_is_the_fold_in_the_order_of_ranks(kind, run, job):
    for seed in range(3):
        run(kind, job, seed)


@needs_cuda
@pytest.mark.parametrize("part", range(8))
def test_in_every_order_of_streams_and_messages(part):
    """In all, 2000 orders of the simulated driver's work and of ranks: half are groups, half solo rounds."""
    for case in range(part, ORDERS, 8):
        seed = 1000 + case
        try:
            if case // 8 % 2:
                run_solo(Simulated, Job(late=("accumulate", "replace")[case // 16 % 2]), seed)
            else:
                run_groups(Simulated, Job(("float32", "float64")[case // 16 % 2]), seed)
        except AssertionError as error:
            raise AssertionError(f"simulated driver, seed {seed}: {error}") from error


def poll(node: Node, condition) -> None:
    """Every rank's engine goes on until it is true."""
    for _ in range(STEPS):
        if condition():
            return
        for member in node.members:
            member.board.advance()
    raise AssertionError("a hang: polled in vain")


def contribute(member: Member, value: float) -> None:
    for _ in member.contribute(np.full(COUNT, value, member.job.dtype)):
        pass


@every_kind
def test_a_rank_that_sleeps_holds_nobody_up(kind):
    """Its engine goes on, its application makes no call; what it gave before is taken, and its results are kept."""
    node = Node(kind(3), Job(), reads=9, latest=True)
    early, sleeper = node.members[0], node.members[3]
    contribute(sleeper, 100)
    poll(node, lambda: early.board.waiting() == [3])
    for ticket in range(1, 8):
        contribute(early, ticket)
        poll(node, lambda: 0 in early.board.waiting())
        assert early.board.fold(ticket, early.board.waiting(), [0, 3], 1)
        poll(node, lambda ticket=ticket: early.try_to_read(ticket) is not None)
        early.expected.append(np.full(COUNT, ticket + (100 if ticket == 1 else 0), "f4"))
    assert sleeper.try_to_read(1) == (7, [0])  # the newest
    sleeper.expected.append(np.full(COUNT, 7, "f4"))
    node.end(np.random.default_rng(0))


@every_kind
def test_a_contribution_for_one_round_is_not_taken_by_another(kind):
    node = Node(kind(1), Job(), reads=1)
    for _ in node.members[0].contribute(np.zeros(COUNT, "f4"), ticket=7):
        pass
    poll(node, node.members[0].board.advance)
    assert node.members[1].board.waiting() == []
    assert not node.members[0].board.fold(6, [0], [0], 1)
    assert node.members[0].board.fold(7, [0], [], 1)
    node.end(np.random.default_rng(0))


@every_kind
def test_a_contribution_that_is_added_to_cannot_be_taken(kind):
    node = Node(kind(1), Job(), reads=1)
    first = node.members[0]
    contribute(first, 1)
    poll(node, lambda: first.board.waiting() == [0])
    contribute(first, 2)
    assert first.board.waiting() == []
    assert not first.board.fold(1, [0], [0], 1)
    poll(node, lambda: first.board.fold(1, [0], [0], 1))
    poll(node, lambda: first.try_to_read(1))
    first.expected.append(np.full(COUNT, 3, "f4"))
    node.end(np.random.default_rng(0))


@every_kind
def test_without_a_free_buffer_calls_say_so(kind):
    """Results that are not read fill the arena; whoever leaves reads no more of them."""
    node = Node(kind(1), Job(), reads=1)
    first = node.members[0]
    for ticket in range(1, 6):
        contribute(first, 1)
        poll(node, lambda: first.board.waiting() == [0])
        begun = first.board.fold(ticket, [0], [1], 1)
        assert begun == (ticket < 5)
        poll(node, first.board.advance)
    node.members[1].board.close()
    assert first.board.fold(5, [0], [1], 1)
    node.end(np.random.default_rng(0))


@every_kind
def test_an_arena_is_freed_when_nobody_has_it_mapped(kind):
    node = Node(kind(1), Job(), reads=1)
    rng = np.random.default_rng(0)
    assert not any(node.members[0].board.close() for _ in range(5))
    node.run([end(member) for member in node.members[1:]], rng)
    assert all(member.board.close() for member in node.members)
    node.end(rng)


@needs_cuda
@pytest.mark.parametrize("nth", [1, 2, 5, 9])
@pytest.mark.parametrize("call", ["cuLaunchKernel", "cuEventRecord", "cuStreamWaitEvent", "cuEventQuery"])
def test_an_error_is_raised_there_and_named_by_the_others(call, nth):
    """And everything can still be closed, and leaves nothing."""
    node = Node(Simulated(nth), Job("float16"), reads=5)
    rng = np.random.default_rng(nth)
    groups = [list(range(RANKS))] * 5
    values = node.members[0].job.values(rng, 5, RANKS)
    errors = {}

    def program(member: Member):
        try:
            yield from in_groups(member, groups, values)
        except RuntimeError as error:
            errors[member.slot] = str(error)

    node.machine.driver.fail(call, nth, NOT_SUPPORTED)
    node.run([program(member) for member in node.members], rng)
    text = f"CUDA: {call}: CUDA_ERROR_OF_SIMULATION (simulated driver)"
    (failed,) = [slot for slot, error in errors.items() if error == text]
    assert {error for slot, error in errors.items() if slot != failed} == {f"rank {10 + failed}: {text}"}
    assert len(errors) == RANKS
    for member in node.members:
        member.expected.clear()  # what was read last may not have been copied
    node.end(rng)


@needs_cuda
@pytest.mark.parametrize("nth", [1, 3, 9, 20, 40])
def test_an_illegal_address_ends_every_wait(nth):
    """Whatever work it is in, and for all ranks: in one process they share the device's context."""
    node = Node(Simulated(nth), Job(), reads=5)
    rng = np.random.default_rng(nth)
    node.machine.driver.fault(nth)
    groups = [list(range(RANKS))] * 5
    with pytest.raises(RuntimeError, match=r"CUDA: \w+: CUDA_ERROR_ILLEGAL_ADDRESS \(simulated driver\)"):
        node.run([in_groups(m, groups, m.job.values(rng, 5, RANKS)) for m in node.members], rng)
    with pytest.raises(RuntimeError, match=r"^rank 1\d: CUDA: \w+: CUDA_ERROR_ILLEGAL_ADDRESS"):
        node.members[0].board.advance()


@every_kind
def test_all_boards_are_made_before_one_is_attached(kind):
    machine = kind(1)
    board = Job().board(testing.DeviceBoardControl(), machine, 2, 0)
    with pytest.raises(RuntimeError, match="before those of all ranks are made"):
        board.attach()
    del board
    machine.end()


@every_kind
def test_a_result_is_read_once(kind):
    node = Node(kind(1), Job(), reads=1)
    contribute(node.members[0], 1)
    poll(node, lambda: node.members[0].board.waiting() == [0])
    assert node.members[0].board.fold(1, [0], [0, 1], 1)
    poll(node, lambda: node.members[0].try_to_read(1))
    poll(node, node.members[0].board.advance)
    with pytest.raises(RuntimeError, match="is no reader of that result, or has read it"):
        node.members[0].try_to_read(1)
    poll(node, lambda: node.members[1].try_to_read(1))  # the others go on
    node.end(np.random.default_rng(0))


def test_more_ranks_than_a_board_has_room_for():
    with pytest.raises(RuntimeError, match="expected at most 64 ranks of a node, got 65"):
        Job().board(testing.DeviceBoardControl(), Host(), 65, 0)


OTHER_PROCESS = """
import sys
sys.path.insert(0, sys.argv[1])
from device_ranks import Job
from devices import Simulated
from pycollectives.support.native import core

machine = Simulated(2)
board = Job().board(core.testing.DeviceBoardControl.open(sys.argv[2]), machine, 2, 1)
print("made", flush=True)
input()
board.attach()
print("attached", flush=True)
input()
"""


@needs_cuda
def test_a_rank_that_was_killed_holds_no_memory():
    """Its mappings end with its process; while it lives, the others do not free what it has mapped."""
    machine, control = Simulated(1), testing.DeviceBoardControl()
    board = Job().board(control, machine, 2, 0)
    command = [sys.executable, "-c", OTHER_PROCESS, str(Path(__file__).parents[2] / "support"), control.handle]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "made\n"
        board.attach()
        print(file=other.stdin, flush=True)
        assert other.stdout.readline() == "attached\n"
        assert not any(board.close() for _ in range(5))
        assert board.gone() == []
        other.kill()
    assert board.gone() == [1]
    assert board.close()
    del board
    machine.end()


@needs_cuda
@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_buffers_are_of_all_devices_in_turn(ranks):
    """Of those that a board takes first, which it goes on using, no device has more than another."""
    arenas = testing.arenas_of_buffers(ranks)
    assert arenas == list(range(ranks)) * (len(arenas) // ranks)
    assert len(arenas) > 6 * ranks
