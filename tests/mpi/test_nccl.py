"""Collectives on devices that ask for NCCL: the partial allreduce under Full(), refusals, and fallbacks.

Simulated driver, with a simulated NCCL in which a rank that does not come makes the others wait for ever. Nothing here
needs a GPU, or ran on one. The groups of `partial_reduce` by NCCL: test_device_groups.py.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
import warnings

import numpy as np
import pytest
from device_programs import (
    NCCL_VERSION,
    OnDevice,
    call_until_it_fails,
    device_and_node,
    failing_device,
    play_and_check,
)
from devices import HAS_CUDA
from mpi4py import MPI
from oracle import LIMIT

import pycollectives as pc

WORLD = MPI.COMM_WORLD
COUNT = 150
CASES = int(os.environ.get("PYC_CASES", "12"))
BAD = WORLD.size - 1
MOST = 64
"""Communicators of groups that a rank keeps."""
SYSTEM_ERROR = 2
REMOTE_ERROR = 6
NCCL = {"policy": pc.Full(), "algorithm": "nccl"}

pytestmark = pytest.mark.skipif(not HAS_CUDA, reason="built with PYC_CUDA=OFF")
several_ranks = pytest.mark.skipif(WORLD.size == 1, reason="one rank needs no NCCL")


def device_with_nccl(seed: int, version: int | None = NCCL_VERSION, *, strict: bool = True):
    """A device of this rank's own, with NCCL if it has a version, and a communicator whose ranks are on one node."""
    return device_and_node(seed, nccl=version, strict=strict)


@several_ranks
def test_promises_hold_in_every_order_of_streams_and_ranks():
    """By the oracle of multiplicity: random calls, flushes, and early closes, after which a rank brings nothing."""
    with device_with_nccl(1) as (machine, comm):
        for number in range(CASES):
            play_and_check(machine, comm, 300 + number, **NCCL)


def divided(total: np.ndarray, by: int) -> np.ndarray:
    """Of floats, and of complex numbers part by part."""
    parts = total.view(total.real.dtype)
    return (parts / parts.dtype.type(by)).view(total.dtype)


@several_ranks
@pytest.mark.parametrize("op", ["SUM", "AVG", "MAX"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "uint64", "complex64"])
def test_results_are_those_of_the_host_in_the_order_of_ranks(dtype, op):
    if op == "MAX" and dtype == "complex64":
        pytest.skip("complex numbers have no order")
    with device_with_nccl(2) as (machine, comm):
        rng = np.random.default_rng(0)
        x = OnDevice(machine, np.zeros(COUNT, dtype))
        ar = comm.partial_allreduce(like=x, op=op, missed="latest", **NCCL)
        assert ar.algorithm == "nccl"
        for _ in range(4):
            values = rng.standard_normal((comm.size, COUNT)) * 100
            values = (np.abs(values) if dtype == "uint64" else values).astype(dtype)
            x.write(values[comm.rank])
            ar.contribute(x).wait()
            wide = np.dtype(dtype) if dtype != "float16" else np.dtype("float32")
            total = values[0].astype(wide)
            for one in values[1:]:
                total = np.maximum(total, one) if op == "MAX" else total + one.astype(wide)
            if op == "AVG":
                total = np.trunc(total / comm.size) if dtype in ("int32", "uint64") else divided(total, comm.size)
            np.testing.assert_array_equal(ar.result.to_host(), total.astype(dtype))
        ar.close()
        x.free()
        del ar


@several_ranks
def test_any_length():
    with device_with_nccl(3) as (machine, comm):
        for count in (0, 1, 8, 100_003):
            x = OnDevice(machine, np.zeros(count, "float64"))
            with comm.partial_allreduce(like=x, **NCCL) as ar:
                for number in range(4):
                    x.write(np.arange(count) + number)
                    ar.contribute(x).wait()
                    np.testing.assert_array_equal(ar.result.to_host(), comm.size * (np.arange(count) + number))
            x.free()
            del ar


@several_ranks
@pytest.mark.parametrize("op", ["SUM", "MAX", "PROD"])
def test_ranks_that_have_left_change_nothing(op):
    """They still take part in NCCL's reductions, with the identity of the operation."""
    with device_with_nccl(4) as (machine, comm):
        x = OnDevice(machine, np.full(COUNT, -2.0))
        ar = comm.partial_allreduce(like=x, op=op, missed="latest", **NCCL)
        for left in range(comm.size):
            if comm.rank < left:
                break
            result, info = ar.allreduce(x)
            assert info.contributors == tuple(range(left, comm.size))
            expected = {"SUM": -2.0 * (comm.size - left), "MAX": -2.0, "PROD": (-2.0) ** (comm.size - left)}[op]
            np.testing.assert_array_equal(result.to_host(), np.full(COUNT, expected))
            del result
            if comm.rank == left:
                ar.close()
                break
        WORLD.Barrier()
        x.free()
        del ar


@several_ranks
def test_nothing_is_allocated_after_creation():
    with device_with_nccl(5) as (machine, comm):
        x = OnDevice(machine, np.zeros(COUNT, "float32"))
        with comm.partial_allreduce(like=x, **NCCL) as ar:
            for call in ("cuMemAlloc_v2", "cuMemHostAlloc", "cuStreamCreateWithPriority", "cuEventCreate"):
                machine.driver.fail(call, 1, SYSTEM_ERROR)
            for _ in range(20):
                ar.allreduce(x)
        x.free()
        del ar


@several_ranks
@pytest.mark.parametrize("make", ["partial_allreduce", "partial_reduce"])
def test_no_communicator_ends_while_another_rank_reduces(make):
    """The last round, or group, takes long on one rank, whose communicator may read from the others'."""
    with device_with_nccl(13) as (machine, comm):
        x = OnDevice(machine, np.full(COUNT, comm.rank, "float32"))
        for _ in range(25):  # the last round has data if all have closed before a rank's part is taken
            machine.driver.hold_reductions(comm.rank == BAD)
            timers = [threading.Timer(0.06, machine.driver.hold_reductions, [False])]
            if make == "partial_allreduce":
                made = comm.partial_allreduce(like=x, **NCCL)
                machine.driver.hold(x.handle)  # the contribution is made as the collective is closed
                timers.append(threading.Timer(0.01, machine.driver.let_go, [x.handle]))
            else:
                made = comm.partial_reduce(like=x, groups=pc.StaticGroups(comm.size), algorithm="nccl")
            for timer in timers:
                timer.start()
            if make == "partial_allreduce":
                made.contribute(x)
            else:
                made.sync(x, step=1)
            made.close()
            del made
            for timer in timers:
                timer.join()
            WORLD.Barrier()
        x.free()


class GroupsOfRankZero(pc.StaticGroups):
    """All of them, small ones first, and then pairs without that rank; each group in a step of its own."""

    def group_of(self, rank: int, step: int, size: int) -> tuple[int, ...]:
        others = range(1, size)
        of_zero = [(0, *more) for length in others for more in itertools.combinations(others, length)]
        pairs = list(itertools.combinations(others, 2))
        order = [*of_zero[: MOST + 2], *pairs[:2]]
        group = order[step % len(order)]
        return group if rank in group else (rank,)


@several_ranks
def test_communicators_are_kept_and_counted_up_to_a_number():
    """Of 8 ranks, one comes to more groups than it keeps communicators of; those beyond go by the host."""
    with device_with_nccl(14) as (machine, comm):
        rng = np.random.default_rng(0)
        x, groups = OnDevice(machine, np.zeros(COUNT)), GroupsOfRankZero(1)
        kept = [set() for _ in range(comm.size)]
        hits = misses = 0
        with comm.partial_reduce(like=x, groups=groups, algorithm="nccl") as pr:
            for step in range(MOST + 8):
                values = rng.standard_normal((comm.size, COUNT))
                x.write(values[comm.rank])
                pr.sync(x, step)
                group = max(groups.groups(step, comm.size), key=len)
                mean = values[list(group)].mean(axis=0) if comm.rank in group else values[comm.rank]
                np.testing.assert_allclose(x.get(), mean, rtol=1e-12, atol=1e-12)
                is_new = group not in kept[group[0]]
                by_nccl = not is_new or all(len(kept[member]) < MOST for member in group)
                for member in group if by_nccl else ():
                    kept[member].add(group)
                hits += by_nccl and comm.rank in group and not is_new
                misses += by_nccl and comm.rank in group and is_new
                assert (pr.cache_hits, pr.cache_misses) == (hits, misses)
                assert machine.driver.communicators == len(kept[comm.rank])
        assert comm.size < 8 or len(kept[0]) == MOST < step
        x.free()
        del pr


# --- what is refused, and what cannot be


def test_arguments_refused():
    with device_with_nccl(6) as (machine, comm):
        x = OnDevice(machine, np.zeros(COUNT, "float32"))
        short = OnDevice(machine, np.zeros(COUNT, "int16"))
        with pytest.raises(ValueError, match=r"algorithm='nccl': expected policy Full\(\), .* got Solo"):
            comm.partial_allreduce(like=x, policy=pc.Solo(), algorithm="nccl")
        with pytest.raises(ValueError, match=r"algorithm='nccl': expected an array on a CUDA device as like"):
            comm.partial_allreduce(like=np.zeros(COUNT), **NCCL)
        with pytest.raises(ValueError, match=r"algorithm='nccl': expected elements that NCCL can reduce, got int16"):
            comm.partial_allreduce(like=short, **NCCL)
        groups = pc.StaticGroups(comm.size)
        with pytest.raises(ValueError, match=r"algorithm: expected .*auto.*nccl.*, got 'ring'"):
            comm.partial_reduce(like=x, groups=groups, algorithm="ring")
        with pytest.raises(ValueError, match=r"algorithm='nccl': expected an array on a CUDA device as like"):
            comm.partial_reduce(like=np.zeros(COUNT), groups=groups, algorithm="nccl")
        if comm.size > 1:
            with pytest.raises(ValueError, match=r"algorithm='nccl': expected weighting 'uniform', got 'staleness'"):
                comm.partial_reduce(like=x, groups=pc.RandomGroups(2), weighting="staleness", algorithm="nccl")
        x.free()
        short.free()


def works_otherwise(machine, comm, reason: str) -> None:
    """Both collectives are made, and right; rank 0 alone says why they are made without NCCL."""
    x = OnDevice(machine, np.full(COUNT, comm.rank, "float32"))
    for make in (
        lambda: comm.partial_allreduce(like=x, name="sum", op="AVG", **NCCL),
        lambda: comm.partial_reduce(like=x, name="sum", groups=pc.StaticGroups(comm.size), algorithm="nccl"),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            made = make()
        said = [str(one.message) for one in caught if one.category is RuntimeWarning]
        assert len(said) == (comm.rank == 0), said
        assert all(one.startswith("sum: NCCL is not used, but ") and one.endswith(reason) for one in said), said
        assert made.algorithm != "nccl"
        if isinstance(made, pc.PartialAllreduce):
            result, _ = made.allreduce(x)
            np.testing.assert_array_equal(result.to_host(), np.full(COUNT, (comm.size - 1) / 2))
            del result
        else:
            made.sync(x, step=1)
            np.testing.assert_array_equal(x.get(), np.full(COUNT, (comm.size - 1) / 2))
        made.close()
        WORLD.Barrier()
    x.free()


@several_ranks
def test_without_nccl_on_one_rank():
    with device_with_nccl(7, NCCL_VERSION if WORLD.rank != BAD else None) as (machine, comm):
        works_otherwise(machine, comm, f": rank {BAD}: the simulated driver has no NCCL")


@several_ranks
def test_other_versions():
    with device_with_nccl(8, NCCL_VERSION if WORLD.rank != BAD else 22809) as (machine, comm):
        works_otherwise(machine, comm, f": rank 0 has NCCL 2.32.3, rank {BAD} 2.28.9")


@several_ranks
@pytest.mark.parametrize(("version", "is_enabled"), [(22907, True), (23000, False), (23000, True)])
def test_ranks_on_one_device(version, is_enabled, monkeypatch):
    monkeypatch.setenv("NCCL_MULTI_RANK_GPU_ENABLE", str(int(is_enabled)))
    with device_with_nccl(9, version) as (machine, comm):
        machine.driver.set_device_id("of both" if comm.rank in (0, BAD) else f"of {comm.rank}")
        if version >= 23000 and is_enabled:
            x = OnDevice(machine, np.ones(COUNT))
            with comm.partial_allreduce(like=x, **NCCL) as ar:
                assert ar.algorithm == "nccl"
                ar.allreduce(x)
            x.free()
            del ar
        else:
            text = f"2.{version // 100 % 100}.{version % 100}"
            works_otherwise(machine, comm, f"NCCL_MULTI_RANK_GPU_ENABLE=1 is set; this is {text}")


# --- failures


@several_ranks
@pytest.mark.parametrize("call", ["ncclGetUniqueId", "ncclCommInitRankConfig", "ncclCommGetAsyncError"])
def test_what_fails_at_creation_fails_on_all(call):
    rank = 0 if call == "ncclGetUniqueId" else BAD
    with device_with_nccl(10, strict=False) as (machine, comm):
        x = OnDevice(machine, np.zeros(COUNT, "float32"))
        if comm.rank == rank:
            machine.driver.fail(call, 1, SYSTEM_ERROR)
        with pytest.raises(RuntimeError, match=f"^the board of 'sum': on rank {rank}: NCCL: {call}: "):
            comm.partial_allreduce(like=x, name="sum", **NCCL)
        with comm.partial_allreduce(like=x, **NCCL) as ar:
            ar.allreduce(x)
        x.free()
        del ar


@several_ranks
@pytest.mark.parametrize("nth", [1, 3])
def test_a_reduction_that_fails_on_one_rank_is_named_by_all(nth):
    """The others wait in a reduction that it has not come to: they are told, and give it up."""
    with device_with_nccl(11, strict=False) as (machine, comm):
        x = OnDevice(machine, np.full(COUNT, comm.rank + 1, "float32"))
        ar = comm.partial_allreduce(like=x, missed="latest", name="sum", **NCCL)
        if comm.rank == BAD:
            machine.driver.fail("ncclAllReduce", nth, SYSTEM_ERROR)
        text = call_until_it_fails(ar, x)
        assert "NCCL: ncclAllReduce: " in text, text
        assert comm.rank == BAD or text.startswith(f"rank {BAD}: "), text
        ar.close()
        with comm.partial_allreduce(like=x, **NCCL) as again:
            again.allreduce(x)
            assert (again.result.to_host() == comm.size * (comm.size + 1) // 2).all()
        x.free()
        del ar, again


@several_ranks
@pytest.mark.parametrize("nth", [2, 13, 21])
def test_a_device_that_is_lost_is_named_by_all(nth):
    with failing_device(nth) as machine:
        machine.driver.use_nccl(NCCL_VERSION)
        with pc.Communicator(WORLD, timeout=LIMIT) as comm:
            x = OnDevice(machine, np.full(COUNT, comm.rank + 1, "float32"))
            ar = comm.partial_allreduce(like=x, missed="latest", **NCCL)
            if comm.rank == BAD:
                machine.driver.fault(nth)
            text = call_until_it_fails(ar, x)
            assert text.removeprefix(f"rank {BAD}: ").startswith("CUDA: "), text
            assert comm.rank == BAD or text.startswith(f"rank {BAD}: "), text
            ar.close()
            assert comm.mean(1.0) == 1.0  # the communicator goes on
        del ar


@several_ranks
@pytest.mark.parametrize(
    ("call", "nth"),
    [("ncclGetUniqueId", 1), ("ncclCommInitRankConfig", 1), ("ncclAllReduce", 1), ("ncclAllReduce", 4)],
)
def test_a_group_that_fails_on_one_rank_is_named_by_all(call, nth):
    """The others wait in a reduction that this rank does not come to: they are told, and give it up."""
    rank = 0 if call == "ncclGetUniqueId" else BAD
    with device_with_nccl(12, strict=False) as (machine, comm):
        x = OnDevice(machine, np.full(COUNT, comm.rank, "float32"))
        pr = comm.partial_reduce(like=x, groups=pc.RandomGroups(2), name="weights", algorithm="nccl")
        if comm.rank == rank:
            machine.driver.fail(call, nth, SYSTEM_ERROR)
        expected = f"NCCL: {call}: " if comm.rank == rank else f"rank {rank}: NCCL: {call}: "
        with pytest.raises(RuntimeError, match=f"^{expected}"):
            until = time.monotonic() + LIMIT
            while time.monotonic() < until:
                pr.sync(x)
        pr.close()
        with comm.partial_reduce(like=x, groups=pc.StaticGroups(comm.size), algorithm="nccl") as again:
            x.write(np.full(COUNT, comm.rank))
            again.sync(x, step=1)
            np.testing.assert_array_equal(x.get(), np.full(COUNT, (comm.size - 1) / 2))
        x.free()
        del pr, again


@several_ranks
@pytest.mark.parametrize("held", ["on this rank", "on all ranks"])
@pytest.mark.parametrize("make", ["partial_allreduce", "partial_reduce"])
def test_an_error_that_nccl_finds_while_it_reduces_is_named_by_all(make, held):
    """In a reduction that does not end: the other ranks are in it too, or wait for the next one."""
    options = NCCL if make == "partial_allreduce" else {"groups": pc.StaticGroups(WORLD.size), "algorithm": "nccl"}
    text = "NCCL: ncclAllReduce: remote process exited or there was a network error$"
    with device_with_nccl(15, strict=False) as (machine, comm):
        x = OnDevice(machine, np.full(COUNT, comm.rank, "float32"))
        made = getattr(comm, make)(like=x, **options)
        call = made.allreduce if make == "partial_allreduce" else made.sync
        machine.driver.hold_reductions(held == "on all ranks" or comm.rank == BAD)
        if comm.rank == BAD:
            machine.driver.fail("ncclCommGetAsyncError finds while it reduces", 1, REMOTE_ERROR)
        named = f"(rank {BAD}: )?" if comm.rank == BAD else f"rank {BAD}: "
        with pytest.raises(RuntimeError, match=f"^{named}{text}"):
            until = time.monotonic() + LIMIT
            while time.monotonic() < until:
                call(x)
        made.close()
        machine.driver.hold_reductions(False)
        with comm.partial_allreduce(like=x, **NCCL) as again:
            again.allreduce(x)
        x.free()
        del made, call, again
