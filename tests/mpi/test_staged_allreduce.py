"""The partial allreduce of arrays on devices of several nodes, whose data goes through pinned memory of the host.

Simulated driver, whose copies are done late. Nothing here needs a GPU, or ran on one.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time

import numpy as np
import pytest
from device_programs import OnDevice, call_until_it_fails, cut_short, device_and_ranks, failing_device, play_and_check
from devices import HAS_CUDA
from mpi4py import MPI
from oracle import LIMIT

import pycollectives as pc

WORLD = MPI.COMM_WORLD
COUNT = 150
SCHEDULES = ("recursive_doubling", "ring", "rabenseifner", "tree")
CASES = int(os.environ.get("PYC_CASES", "12"))
BAD = WORLD.size - 1
OUT_OF_MEMORY = 2
FAILED = 719
FAULT = r"CUDA: \w+: CUDA_ERROR_\w+ \(simulated driver\)"

pytestmark = pytest.mark.skipif(not HAS_CUDA, reason="built with PYC_CUDA=OFF")


HOSTS = len(set(WORLD.allgather(MPI.Get_processor_name())))


@pytest.fixture(autouse=True)
def several_nodes(monkeypatch):
    """Those of the pass, else the hosts, else each rank is a node."""
    shape = os.environ.get("PYC_RANKS_PER_NODE", "1" if HOSTS == 1 else "all")
    if WORLD.size == 1 or (shape == "all" and HOSTS == 1):
        pytest.skip("one node stages nothing")
    if WORLD.size == 7:
        pytest.skip("nothing that 5 and 8 ranks do not show")
    monkeypatch.setenv("PYC_RANKS_PER_NODE", shape)


@pytest.fixture
def short_pieces(monkeypatch):
    cut_short(monkeypatch)


def algorithms(comm) -> list[str]:
    """All by which these ranks can work together."""
    boards = ["auto", *(f"board+{schedule}" for schedule in SCHEDULES)] if comm.ranks_per_node > 1 else []
    return [*boards, *SCHEDULES]


def last_leader(comm) -> int:
    """The rank that exchanges the messages of the last node."""
    return comm.nodes.index(comm.nodes[-1])


# --- the promises, and the bits


def test_promises_hold_in_every_order_of_streams_and_ranks():
    """All nine, by the oracle of multiplicity: random calls, unfinished calls, flushes and early closes."""
    with device_and_ranks(1) as (machine, comm):
        for number, algorithm in zip(range(CASES), itertools.cycle(algorithms(comm))):
            play_and_check(machine, comm, 100 + number, algorithm=algorithm)


def test_promises_hold_of_data_in_pieces(short_pieces):
    with device_and_ranks(2) as (machine, comm):
        for number, algorithm in zip(range(CASES), itertools.cycle(algorithms(comm))):
            play_and_check(machine, comm, 7000 + number, algorithm=algorithm, tiles=23)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_results_have_the_bits_of_the_host(dtype, short_pieces):
    with device_and_ranks(3) as (machine, comm):
        if comm.ranks_per_node > 2:
            pytest.skip("three ranks of a node are added up as they come")
        flat = comm.ranks_per_node == 1
        rng = np.random.default_rng(comm.rank)
        x = OnDevice(machine, np.zeros(COUNT, dtype))
        for schedule in SCHEDULES:
            options = {"policy": pc.Full(), "algorithm": schedule if flat else f"board+{schedule}", "missed": "latest"}
            ar = comm.partial_allreduce(x, **options)
            host = comm.partial_allreduce(np.zeros(COUNT, dtype), **options)
            assert host.algorithm == options["algorithm"]
            assert ar.algorithm == (f"staged {schedule}" if flat else f"board+staged {schedule}")
            for _ in range(4):
                values = rng.standard_normal(COUNT).astype(dtype)
                x.write(values)
                ar.contribute(x).wait()
                expected, _ = host.allreduce(values)
                assert ar.result.to_host().tobytes() == expected.tobytes(), schedule
            ar.leave()
            host.close()
            del ar
        x.free()


def test_any_length():
    with device_and_ranks(4) as (machine, comm):
        for count in (0, 1, 8, 300_003):
            x = OnDevice(machine, np.zeros(count, "float64"))
            for schedule in ("tree", "rabenseifner"):  # the root of a tree goes on while others still receive from it
                ar = comm.partial_allreduce(x, policy=pc.Full(), algorithm=schedule)
                for number in range(4):
                    x.write(np.arange(count) + number)
                    ar.contribute(x).wait()
                    np.testing.assert_array_equal(ar.result.to_host(), comm.size * (np.arange(count) + number))
                ar.leave()
                del ar
            x.free()


@pytest.mark.parametrize("dtype", ["float16", "int32"])
def test_averages_of_few_contributors(dtype):
    """A rank or two at a time: the others' nodes bring nothing to a round, and get its result."""
    with device_and_ranks(5) as (machine, comm):
        x = OnDevice(machine, np.zeros(COUNT, dtype))
        ar = comm.partial_allreduce(x, op="AVG", policy=pc.Solo(), missed="latest", late="drop")
        for number in range(4):
            if comm.rank == number % comm.size:
                x.write(np.full(COUNT, 7 + number))
                ar.allreduce(x)
            WORLD.Barrier()
            x.write(np.zeros(COUNT))
            if comm.rank != number % comm.size:
                result, info = ar.allreduce(x)  # late: is given that round
                assert info.contributors == (number % comm.size,)
                np.testing.assert_array_equal(result.to_host(), np.full(COUNT, 7 + number, dtype))
            ar.flush()
        ar.leave()
        x.free()
        del ar, result


def test_nothing_is_allocated_after_creation():
    with device_and_ranks(6) as (machine, comm):
        x = OnDevice(machine, np.zeros(COUNT, "float32"))
        ar = comm.partial_allreduce(x, policy=pc.Solo(), history=2)
        for call in ("cuMemAlloc_v2", "cuMemHostAlloc", "cuStreamCreateWithPriority", "cuEventCreate"):
            machine.driver.fail(call, 1, OUT_OF_MEMORY)
        for _ in range(20):
            ar.allreduce(x)
        ar.flush()
        ar.leave()
        x.free()
        del ar


# --- what is refused


def test_host_and_device_do_not_mix():
    with device_and_ranks(7) as (machine, comm):
        x = OnDevice(machine, np.zeros(COUNT, "float32"))
        with pytest.raises(pc.MismatchError, match="memory"):
            comm.partial_allreduce(np.zeros(COUNT, "float32") if comm.rank == BAD else x)
        x.free()


def test_an_algorithm_that_does_not_exist():
    with device_and_ranks(7) as (machine, comm):
        x = OnDevice(machine, np.zeros(COUNT, "float32"))
        with pytest.raises(ValueError, match="algorithm: expected 'auto', 'board', NAME or 'board\\+NAME'"):
            comm.partial_allreduce(x, algorithm="star")
        x.free()


# --- failures


def test_what_fails_on_one_rank_fails_on_all():
    with device_and_ranks(8) as (machine, comm):
        x = OnDevice(machine, np.zeros(COUNT, "float32"))
        leader = last_leader(comm)
        stream = "cuStreamCreateWithPriority"
        for call, nth in (("cuMemAlloc_v2", 1), ("cuMemHostAlloc", 2), ("cuMemHostAlloc", 4), (stream, 5)):
            if comm.rank == leader:
                machine.driver.fail(call, nth, OUT_OF_MEMORY)
            text = f"^the board of 'sum': on rank {leader}: CUDA: {call}: .*OUT_OF_MEMORY"
            with pytest.raises(RuntimeError, match=text):
                comm.partial_allreduce(x, name="sum")
        x.free()


def test_more_ranks_than_memory():
    """What the ranks before it have left of a device is too little for the last one."""
    count = 1 << 20
    with device_and_ranks(9, capacity=1 << 24 if WORLD.rank == BAD else 1 << 28) as (machine, comm):
        x = OnDevice(machine, np.zeros(count, "float32"))
        with pytest.raises(RuntimeError, match=f"'sum': on rank {BAD}: CUDA: cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY"):
            comm.partial_allreduce(x, name="sum")
        x.free()
        x = OnDevice(machine, np.ones(count // 256, "float32"))
        with comm.partial_allreduce(x, policy=pc.Full()) as ar:  # all that the first had is free again
            ar.allreduce(x)
            assert (ar.result.to_host() == comm.size).all()
        del ar
        x.free()


@pytest.mark.parametrize(("nth", "policy"), [(2, pc.Full()), (13, pc.Full()), (21, pc.Full()), (29, pc.Solo())])
def test_a_device_that_is_lost_is_named_by_all(nth, policy, short_pieces):
    with failing_device(nth) as machine:
        with pc.Communicator(WORLD, timeout=LIMIT) as comm:
            leader = last_leader(comm)
            x = OnDevice(machine, np.full(COUNT, comm.rank + 1, "float32"))
            ar = comm.partial_allreduce(x, policy=policy, late="replace", missed="latest", algorithm="ring")
            if comm.rank == leader:
                machine.driver.fault(nth)
            text = call_until_it_fails(ar, x)
            assert text.removeprefix(f"rank {leader}: ").startswith("CUDA: "), text
            assert comm.rank == leader or text.startswith(f"rank {leader}: "), text
            with pytest.raises(RuntimeError, match=f"^rank {leader}: {FAULT}"):
                ar.contribute(x)
            ar.leave()
            assert comm.mean(1.0) == 1.0  # the communicator goes on
        del ar


@pytest.mark.parametrize(("call", "nth"), [("cuMemcpyAsync", 5), ("cuMemcpyAsync", 11), ("cuEventRecord", 12)])
def test_a_call_that_fails_is_named_by_all(call, nth, short_pieces):
    """The device lives: what it had is freed in the end, and the next collective works."""
    with device_and_ranks(10) as (machine, comm):
        leader = last_leader(comm)
        x = OnDevice(machine, np.full(COUNT, comm.rank + 1, "float32"))
        ar = comm.partial_allreduce(x, policy=pc.Full(), missed="latest", name="sum")
        if comm.rank == leader:
            machine.driver.fail(call, nth, FAILED)
        text = call_until_it_fails(ar, x)
        assert f"CUDA: {call}: " in text, text
        assert comm.rank == leader or text.startswith(f"rank {leader}: "), text
        ar.leave()
        with comm.partial_allreduce(x, policy=pc.Full()) as again:
            again.allreduce(x)
            assert (again.result.to_host() == comm.size * (comm.size + 1) // 2).all()
        x.free()
        del ar, again


def test_ranks_that_wait_in_a_flush_are_told(short_pieces):
    with failing_device(11) as machine:
        with pc.Communicator(WORLD, timeout=LIMIT) as comm:
            leader = last_leader(comm)
            x = OnDevice(machine, np.ones(COUNT, "float32"))
            ar = comm.partial_allreduce(x, policy=pc.Full(), name="sum")
            ar.allreduce(x)
            WORLD.Barrier()
            if comm.rank == leader:
                machine.driver.fault(1)
                until = time.monotonic() + LIMIT
                with pytest.raises(RuntimeError, match=FAULT):
                    while time.monotonic() < until:
                        ar.contribute(x)
            else:
                with pytest.raises(RuntimeError, match=f"^rank {leader}: {FAULT}"):
                    ar.flush()
            ar.leave()
        del ar


def test_a_rank_that_does_not_come_is_named():
    with device_and_ranks(12) as (machine, comm):
        x = OnDevice(machine, np.zeros(COUNT, "float32"))
        ar = comm.partial_allreduce(x, policy=pc.Full(), name="sum")
        if comm.rank != BAD:
            handle = ar.contribute(x)
            with pytest.raises(pc.StallError, match=f"'sum'.*rank {BAD}"):
                handle.wait(timeout=0.2)
            WORLD.Barrier()
            handle.wait()
            del handle
        else:
            WORLD.Barrier()
            ar.allreduce(x)
        ar.leave()
        x.free()
        del ar


def test_a_rank_that_leaves_by_an_exception():
    """The others continue without it."""
    with device_and_ranks(13) as (machine, comm):
        x = OnDevice(machine, np.ones(COUNT, "float32"))
        with (
            pytest.warns(RuntimeWarning, match="discarded") if comm.rank == BAD else contextlib.nullcontext(),
            pytest.raises(KeyError) if comm.rank == BAD else contextlib.nullcontext(),
            comm.partial_allreduce(x, policy=pc.Quorum(1), late="drop") as ar,
        ):
            ar.allreduce(x)
            WORLD.Barrier()
            if comm.rank == BAD:
                raise KeyError
            for _ in range(5):
                ar.allreduce(x)
        x.free()
        del ar


def test_checks_compare_results_on_the_host(monkeypatch):
    monkeypatch.setenv("PYC_CHECK", "1")
    with device_and_ranks(14) as (machine, comm):
        x = OnDevice(machine, np.zeros(COUNT, "float32"))
        ar = comm.partial_allreduce(x, policy=pc.Full())
        for number in range(3):
            x.write(np.full(COUNT, number + 0.5))
            result, _ = ar.allreduce(x)
            np.testing.assert_array_equal(result.to_host(), comm.size * (number + 0.5))
        ar.flush()
        ar.leave()
        x.free()
        del ar, result
