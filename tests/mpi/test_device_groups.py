"""The partial reduce of arrays on a device, among processes: simulated driver, whose work is done late.

Each rank has a driver, with streams that are done in an order of their own. Nothing here needs a GPU, or ran on one.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from functools import partial

import numpy as np
import pytest
from device_programs import OnDevice, cut_groups_short, device_and_ranks, simulated_device
from devices import HAS_CUDA, Simulated
from group_replay import Log, replay
from mpi4py import MPI
from oracle import LIMIT

import pycollectives as pc

WORLD = MPI.COMM_WORLD
SHAPES = {"flat": 1, "mixed": 2, "board": "all"}
"""Ranks per node."""
COUNT = 150
ON_BOARD = 20_000
"""So many float32 go by the board on the host too."""
CASES = int(os.environ.get("PYC_CASES", {4: 240, 5: 120}.get(WORLD.size, 24))) // len(SHAPES)
"""Of collectives of about ten groups each, in a shape."""
BAD = WORLD.size - 1
OUT_OF_MEMORY = 2

pytestmark = pytest.mark.skipif(not HAS_CUDA, reason="built with PYC_CUDA=OFF")
every_shape = pytest.mark.parametrize("shape", SHAPES)


@pytest.fixture(autouse=True)
def short_pieces(monkeypatch):
    """What goes through the host goes in pieces."""
    cut_groups_short(monkeypatch)


def device_in(shape: str, seed: int):
    """A device of this rank's own, and a communicator."""
    return device_and_ranks(seed, SHAPES[shape])


def generators() -> list:
    """Those that can be with so many ranks."""
    made = [
        pc.groups.RandomGroups(2),
        pc.groups.RandomGroups(3),
        pc.groups.SmartGroups(2),
        pc.groups.PunctualGroups(2),
        pc.groups.StaticGroups(2),
    ]
    return [one for one in made if isinstance(one, pc.groups.StaticGroups) or one.size <= WORLD.size]


# --- averages


def update(rank: int, call: int) -> np.ndarray:
    """What a rank adds before a call: sums of it depend on their order."""
    rng = np.random.default_rng([rank, call])
    return rng.standard_normal(COUNT) * 10.0 ** rng.integers(-2, 3)


def play(machine, comm, seed: int, generator) -> Log:
    """Calls as a training loop makes them: weights are made late, and overwritten late; ranks leave as they like."""
    draw = random.Random(seed * 1009 + comm.rank)
    calls, leaves = draw.randint(0, 10), draw.choice(["with weights", "with weights", "without"])
    if isinstance(generator, pc.groups.StaticGroups):
        calls, leaves = 10, "with weights"
    x = OnDevice(machine, np.zeros(COUNT))
    seen = OnDevice(machine, np.zeros((calls + 1, COUNT)), x.handle)
    log, weights = Log(has_left_weights=leaves == "with weights"), np.zeros(COUNT)
    with contextlib.suppress(KeyError), comm.partial_reduce(x, groups=generator) as pr:
        for call in range(calls):
            x.write(np.full(COUNT, 77))
            x.write(weights + update(comm.rank, call))
            info = pr.average(x)
            seen.copy_from(x, call)  # on the application's stream, which nobody waits for
            log.told[info.sequence, info.group] = info.group
            weights = seen.get()[call]
            if draw.random() < 0.2:
                time.sleep(0.001)
        if leaves == "without":
            raise KeyError
        if calls == 0:
            pr.leave(x)
    log.seen = list(seen.get()[:calls])
    x.free()
    seen.free()
    return log


@every_shape
def test_weights_are_the_averages_of_the_groups_in_every_order(shape):
    """Of streams and of ranks: random calls, ranks that leave early, with their weights and without."""
    with device_in(shape, 1) as (machine, comm):
        for number in range(CASES):
            generator = generators()[number % len(generators())]
            try:
                logs = comm.mpi_comm.allgather(play(machine, comm, number, generator))
                replay(logs, update, [np.zeros(COUNT)] * comm.size)
            except AssertionError as error:
                raise AssertionError(f"{generator}, seed {number}: {error}") from error


@every_shape
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", ["AVG", "SUM", "MAX"])
def test_bits_are_those_of_the_host(shape, dtype, op):
    """Within a node both fold in the order of ranks; between nodes it is the same plan."""
    with device_in(shape, 2) as (machine, comm):
        rng = np.random.default_rng(comm.rank)
        x, host = OnDevice(machine, np.zeros(ON_BOARD, dtype)), np.zeros(ON_BOARD, dtype)
        groups = pc.groups.StaticGroups(2)
        with (
            comm.partial_reduce(x, groups=groups, op=op) as on_device,
            comm.partial_reduce(host, groups=groups, op=op) as on_host,
        ):
            for _ in range(5):
                values = rng.standard_normal(ON_BOARD).astype(dtype)
                x.write(values)
                host[:] = values
                assert on_device.average(x).group == on_host.average(host).group
                assert x.get().tobytes() == host.tobytes()
        x.free()
        del on_device


@pytest.mark.mpi(min_size=2)
@every_shape
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_members_count_by_their_staleness(shape, dtype):
    """The weights of two ranks whose steps are 4 apart, with the bits of the host."""
    if WORLD.size != 2:
        pytest.skip("for two ranks: the generator knows one newest step")
    with device_in(shape, 3) as (machine, comm):
        values = np.random.default_rng(comm.rank).standard_normal(ON_BOARD).astype(dtype)
        x, host = OnDevice(machine, values), values.copy()
        options = {"groups": pc.groups.RandomGroups(2), "weighting": "staleness"}
        for like, write, read in ((x, x.write, x.get), (host, partial(np.copyto, host), host.copy)):
            with comm.partial_reduce(like, **options) as pr:
                for _ in range(2):  # from the first group on the generator knows of step 4, whoever comes first
                    write(values)
                    pr.average(like, step=4 if comm.rank == 0 else 0)
            result = read()
            both = np.array(WORLD.allgather(values.astype("float64")))
            expected = np.average(both, axis=0, weights=[1, 1 / 5])
            np.testing.assert_allclose(result, expected, rtol=2e-3 if dtype == "float16" else 1e-5, atol=1e-3)
            if like is x:
                on_device = result
        if shape == "flat" or dtype != "float16":  # halves are short: by messages on the host, and not on a board
            assert on_device.tobytes() == result.tobytes()
        x.free()
        del pr


@every_shape
@pytest.mark.parametrize("dtype", ["float16", "int32", "int64"])
def test_other_types(shape, dtype):
    with device_in(shape, 4) as (machine, comm):
        x = OnDevice(machine, np.zeros(COUNT, dtype))
        with comm.partial_reduce(x, groups=pc.groups.StaticGroups(comm.size)) as pr:
            x.write(np.arange(COUNT) + 3 * comm.rank)
            pr.average(x, step=1)
            np.testing.assert_array_equal(x.get(), (np.arange(COUNT) + 1.5 * (comm.size - 1)).astype(dtype))
        x.free()
        del pr


@every_shape
@pytest.mark.parametrize("count", [0, 1, 100_003])
def test_any_length(shape, count):
    with device_in(shape, 5) as (machine, comm):
        x = OnDevice(machine, np.full(count, float(comm.rank)))
        with comm.partial_reduce(x, groups=pc.groups.StaticGroups(comm.size)) as pr:
            for step in (1, 3):
                assert pr.average(x, step).group == tuple(range(comm.size))
                np.testing.assert_array_equal(x.get(), np.full(count, (comm.size - 1) / 2))
        x.free()
        del pr


@pytest.mark.mpi(min_size=2)
@every_shape
def test_a_rank_that_leaves_takes_part_with_the_weights_that_it_closed_with(shape):
    """They are copied: the application overwrites its array at once."""
    if WORLD.size != 2:
        pytest.skip("for two ranks")
    with device_in(shape, 6) as (machine, comm):
        x, last = OnDevice(machine, np.full(COUNT, 3.0)), OnDevice(machine, np.zeros(COUNT))
        pr = comm.partial_reduce(x, groups=pc.groups.RandomGroups(2))
        if comm.rank == 0:
            assert pr.average(x).group == (0, 1)
            np.testing.assert_array_equal(x.get(), np.full(COUNT, 6.0))
            pr.leave()
        else:
            time.sleep(0.2)
            last.write(np.full(COUNT, 9.0))
            pr.leave(last)
            last.write(np.full(COUNT, 77))
        WORLD.Barrier()
        x.free()
        last.free()
        del pr


@every_shape
def test_streams_that_are_given(shape):
    """A stream of `stream=` comes after the one that the array names, and both before the weights are taken."""
    with device_in(shape, 7) as (machine, comm):
        x = OnDevice(machine, np.zeros(COUNT))
        other = OnDevice(machine, np.zeros((4, COUNT)))
        with comm.partial_reduce(x, groups=pc.groups.StaticGroups(comm.size)) as pr:
            for number in range(4):
                x.write(np.full(COUNT, number + comm.rank))
                pr.average(x, 2 * number + 1, stream=other.handle)
                other.copy_from(x, number)
                machine.finish()  # before the application's other stream overwrites it
        expected = np.arange(4)[:, None] + np.full(COUNT, (comm.size - 1) / 2)
        np.testing.assert_array_equal(other.get(), expected)
        x.free()
        other.free()
        del pr


def test_a_stream_that_is_not_done_in_time_leaves_all_as_it_was():
    with device_in("board", 8) as (machine, comm):
        x = OnDevice(machine, np.zeros(COUNT))
        with comm.partial_reduce(x, groups=pc.groups.StaticGroups(comm.size), name="weights") as pr:
            for value in range(200):
                x.write(np.full(COUNT, value + comm.rank))
            with pytest.raises(pc.StallError, match="'weights': the stream on which the weights are made"):
                pr.average(x, 1, timeout=0)
            pr.average(x, 1)
            np.testing.assert_array_equal(x.get(), np.full(COUNT, 199 + (comm.size - 1) / 2))
        x.free()
        del pr


@every_shape
def test_nothing_is_allocated_after_creation(shape):
    with device_in(shape, 9) as (machine, comm):
        x = OnDevice(machine, np.zeros(COUNT, "float32"))
        with comm.partial_reduce(x, groups=pc.groups.StaticGroups(2)) as pr:
            for call in ("cuMemAlloc_v2", "cuMemHostAlloc", "cuStreamCreateWithPriority", "cuEventCreate"):
                machine.driver.fail(call, 1, OUT_OF_MEMORY)
            for _ in range(8):
                pr.average(x)
        x.free()
        del pr


# --- what is refused


@pytest.mark.mpi(min_size=2)
def test_host_and_device_do_not_mix():
    with device_in("board", 1) as (machine, comm):
        x = OnDevice(machine, np.zeros(COUNT, "float32"))
        like = np.zeros(COUNT, "float32") if comm.rank == BAD else x
        with pytest.raises(pc.MismatchError, match=r"memory.*"):
            comm.partial_reduce(like, groups=pc.groups.StaticGroups(2))
        x.free()


def test_arrays_refused():
    with device_in("board", 1) as (machine, comm):
        x = OnDevice(machine, np.zeros(COUNT, "float32"))
        other = OnDevice(machine, np.zeros(COUNT + 1, "float32"))
        fixed = OnDevice(machine, np.zeros(COUNT, "float32"))
        fixed.writable = False
        bits = OnDevice(machine, np.zeros(COUNT, "int32"))
        groups = pc.groups.StaticGroups(2)
        pr = comm.partial_reduce(x, groups=groups, name="weights")
        with pytest.raises(BufferError, match=r"^weights: expected an array on CUDA device 0, as at creation"):
            pr.average(x.like)
        with pytest.raises(ValueError, match=r"^weights: expected shape \(150,\) \(150 elements\), got \(151,\)"):
            pr.average(other)
        with pytest.raises(BufferError, match=r"^weights: expected a writable array, got one that is read-only"):
            pr.average(fixed)
        with pytest.raises(ValueError, match=r"op: on a CUDA device expected SUM, AVG, .* got BAND of int32"):
            comm.partial_reduce(bits, groups=groups, op="BAND")
        with pytest.raises(BufferError, match="host memory, got OnDevice on a CUDA device: copy it to the host first"):
            comm.mean(x)
        host = comm.partial_reduce(x.like, groups=groups, name="host")
        with pytest.raises(ValueError, match=r"^host: stream: expected None, as this collective is on the host, got 1"):
            host.average(x.like, stream=1)
        host.close()
        pr.leave()
        for array in (x, other, fixed, bits):
            array.free()
        del pr, host


# --- failures


@every_shape
@pytest.mark.parametrize(
    ("call", "nth"),
    [("cuMemAlloc_v2", 1), ("cuMemHostAlloc", 1), ("cuStreamCreateWithPriority", 2), ("cuIpcOpenMemHandle_v2", 1)],
)
def test_what_fails_on_one_rank_fails_on_all(call, nth, shape):
    within_nodes = SHAPES[shape] == "all" or WORLD.size <= SHAPES[shape]
    if call == "cuMemHostAlloc" and within_nodes:
        pytest.skip("nothing goes through the host")
    is_alone = shape == "flat" or WORLD.size == 1 or (shape == "mixed" and WORLD.size % 2 == 1)
    if call == "cuIpcOpenMemHandle_v2" and is_alone:
        pytest.skip("that rank shares its node with nobody")
    if call == "cuStreamCreateWithPriority" and WORLD.size == 1:
        pytest.skip("there is one stream")
    with device_in(shape, 6) as (machine, comm):
        x = OnDevice(machine, np.zeros(COUNT, "float32"))
        if comm.rank == BAD:
            machine.driver.fail(call, nth, OUT_OF_MEMORY)
        with pytest.raises(RuntimeError, match=f"^the memory of 'weights': on rank {BAD}: CUDA: {call}: "):
            comm.partial_reduce(x, groups=pc.groups.StaticGroups(2), name="weights")
        x.free()


@every_shape
@pytest.mark.parametrize("nth", [3, 11, 40])
@pytest.mark.parametrize("generator", [pc.groups.RandomGroups(2), pc.groups.StaticGroups(2)], ids=repr)
def test_a_fault_on_one_rank_is_named_by_the_others(shape, nth, generator):
    """And all of them can close, and the communicator ends."""
    if WORLD.size == 1 and not isinstance(generator, pc.groups.StaticGroups):
        pytest.skip("a group of two")
    text = r"CUDA: \w+: CUDA_ERROR_ILLEGAL_ADDRESS \(simulated driver\)"
    machine = Simulated(nth * WORLD.size + WORLD.rank)
    machine.driver.use()
    try:
        with pc.Communicator(WORLD, ranks_per_node=SHAPES[shape], timeout=LIMIT) as comm:
            x = OnDevice(machine, np.zeros(COUNT, "float32"))
            pr = comm.partial_reduce(x, groups=generator)
            if comm.rank == BAD:
                machine.driver.fault(nth)
            expected = f"^{text}" if comm.rank == BAD else f"^rank {BAD}: {text}"
            with pytest.raises(RuntimeError, match=expected):
                until = time.monotonic() + LIMIT
                while time.monotonic() < until:
                    pr.average(x)
            with pytest.raises(RuntimeError, match=expected):
                pr.average(x)
            pr.leave()
        WORLD.Barrier()
        del pr
    finally:
        machine.driver.use_no_more()


@pytest.mark.mpi(min_size=2)
@every_shape
def test_a_stall_names_who_has_not_come(shape):
    """The group is performed when the last rank comes, which gets its average; until then the weights are in use."""
    with simulated_device(8 * WORLD.size + WORLD.rank) as machine:
        x = OnDevice(machine, np.full(COUNT, WORLD.rank, "float32"))
        with (
            pc.Communicator(WORLD, ranks_per_node=SHAPES[shape], timeout=LIMIT) as comm,
            comm.partial_reduce(x, groups=pc.groups.StaticGroups(comm.size), name="weights") as pr,
        ):
            if comm.rank == BAD:
                WORLD.Barrier()
                pr.average(x, step=1)
                np.testing.assert_array_equal(x.get(), np.full(COUNT, (comm.size - 1) / 2, "float32"))
            else:
                with pytest.raises(pc.StallError, match=f"in step 1: have not come: rank {BAD}."):
                    pr.average(x, step=1, timeout=0.3)
                WORLD.Barrier()
        x.free()
        del pr
