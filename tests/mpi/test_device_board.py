"""The device board among processes: simulated driver, whose devices' memory they map as by CUDA's IPC.

Each rank has a driver, with streams that are done late; ranks meet in shared memory of the host alone.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from device_processes import drive, finish, new_member
from device_ranks import COUNT, Job, Member, end, in_groups
from devices import HAS_CUDA, Simulated
from mpi4py import MPI
from oracle import LIMIT

from pycollectives.support.native import core

testing = core.testing
WORLD = MPI.COMM_WORLD
ORDERS = int(os.environ.get("PYC_CASES", "2000")) if WORLD.size == 4 else 40
"""Of streams and messages: each rank draws those of its streams, and the machine those of messages."""
GROUPS = 3
OUT_OF_MEMORY = 2

pytestmark = pytest.mark.skipif(not HAS_CUDA, reason="built with PYC_CUDA=OFF")


def simulated(seed: int) -> Simulated:
    """A driver, and so an order of streams, of this rank's own."""
    return Simulated(seed * WORLD.size + WORLD.rank)


@pytest.mark.parametrize("part", range(4))
def test_groups_in_every_order_of_streams_and_messages(part):
    """At 4 ranks, 2000 in all: results are bit for bit those of the host's loops, in the order of ranks."""
    for seed in range(part, ORDERS, 4):
        job = Job(("float32", "float64")[seed % 2])
        rng = np.random.default_rng(seed)  # the same on all ranks
        sizes = rng.integers(1, WORLD.size + 1, GROUPS)
        groups = [sorted(int(r) for r in rng.permutation(WORLD.size)[:size]) for size in sizes]
        member = new_member(simulated(seed), job, reads=GROUPS)
        drive(in_groups(member, groups, job.values(rng, GROUPS, WORLD.size)), member)
        finish(member)


def alone(member: Member, values: np.ndarray):
    """Start rounds of this rank's own with whoever has contributed, unless somebody else's has taken the values."""
    for number, given in enumerate(values):
        before = member.board.taken_by
        yield from member.contribute(given)
        ticket = 1 + number * WORLD.size + member.slot
        while member.board.taken_by == before:
            member.board.advance()
            waiting = member.board.waiting()
            if member.slot in waiting and member.board.fold(ticket, waiting, [member.slot], 1):
                while member.try_to_read(ticket) is None:
                    member.board.advance()
                    yield
            yield


def test_every_contribution_is_in_one_result():
    """Solo rounds that start whenever a rank likes: all that was given is in what all have got, once."""
    job, calls = Job("int64"), 4
    for seed in range(ORDERS // 10):
        member = new_member(simulated(seed), job, reads=calls)
        values = job.values(np.random.default_rng([seed, WORLD.rank]), calls)
        drive(alone(member, values), member)
        member.machine.finish()
        got = member.seen.get()[: member.read].sum(axis=0)
        np.testing.assert_array_equal(WORLD.allreduce(got), WORLD.allreduce(values.sum(axis=0)))
        assert WORLD.allreduce(member.read) >= calls
        finish(member)


@pytest.mark.parametrize("nth", [2, 7])
def test_a_fault_on_one_rank_is_named_by_the_others(nth):
    job = Job()
    member = new_member(simulated(nth), job, reads=4)
    bad = WORLD.size - 1
    if WORLD.rank == bad:
        member.machine.driver.fault(nth)
    everybody = list(range(WORLD.size))
    values = job.values(np.random.default_rng(nth), 4, WORLD.size)
    text = r"CUDA: \w+: CUDA_ERROR_ILLEGAL_ADDRESS \(simulated driver\)$"
    with pytest.raises(RuntimeError, match=f"^{text}" if WORLD.rank == bad else f"^rank {10 + bad}: {text}"):
        drive(in_groups(member, [everybody] * 4, values), member)
    drive(end(member), member)
    WORLD.Barrier()


def made_by_an_engine(comm, machine: Simulated):
    return testing.make_device_board(
        comm._context.engine, [0] * comm.size, machine.executor, dtype="float32", op="SUM", count=COUNT, timeout=LIMIT
    )


def test_made_by_an_engine(comm):
    """Collectively; then it is like any other."""
    machine = Simulated(comm.rank)
    member = Member(machine, made_by_an_engine(comm, machine), Job(), comm.rank, 1)
    values = Job().values(np.random.default_rng(1), 1, comm.size)
    drive(in_groups(member, [list(range(comm.size))], values), member)
    finish(member)


@pytest.mark.parametrize(
    ("call", "nth"), [("cuMemAlloc_v2", 1), ("cuStreamCreateWithPriority", 3), ("cuIpcOpenMemHandle_v2", 1)]
)
def test_what_fails_on_one_rank_fails_on_all(comm, call, nth):
    """Out of memory, or of what else a device has: the rank is named, and nothing is left."""
    if comm.size == 1 and call == "cuIpcOpenMemHandle_v2":
        pytest.skip("one rank opens nothing")
    machine = Simulated(comm.rank)
    if comm.rank == comm.size - 1:
        machine.driver.fail(call, nth, OUT_OF_MEMORY)
    with pytest.raises(RuntimeError, match=f"^a device board: on rank {comm.size - 1}: CUDA: {call}: "):
        made_by_an_engine(comm, machine)
    WORLD.Barrier()
    machine.end()
