"""The partial allreduce of arrays on a device, among processes: simulated driver, whose work is done late.

Each rank has a driver, with streams that are done in an order of their own. Nothing here needs a GPU, or ran on one.
"""

from __future__ import annotations

import gc
import os
import time

import numpy as np
import pytest
from device_programs import OnDevice, device_and_node, failing_device, play_and_check, simulated_device
from devices import HAS_CUDA
from mpi4py import MPI
from oracle import LIMIT

import pycollectives as pc

WORLD = MPI.COMM_WORLD
COUNT = 150
PARTS = 4
CASES = int(os.environ.get("PYC_CASES", {4: 200, 5: 100}.get(WORLD.size, 24))) // PARTS
"""Of collectives, in a part; in each a rank's streams and processes come in an order of their own."""
BAD = WORLD.size - 1
OUT_OF_MEMORY = 2

pytestmark = pytest.mark.skipif(not HAS_CUDA, reason="built with PYC_CUDA=OFF")


@pytest.mark.parametrize("part", range(PARTS))
def test_promises_hold_in_every_order_of_streams_and_ranks(part):
    """All nine, by the oracle of multiplicity: random calls, unfinished calls, flushes and early closes."""
    with device_and_node(part) as (machine, comm):
        for number in range(CASES):
            play_and_check(machine, comm, 1000 * part + number)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_floats_are_bit_for_bit_the_same_on_all_ranks(dtype):
    with device_and_node(7) as (machine, comm):
        rng = np.random.default_rng(comm.rank)
        x = OnDevice(machine, np.zeros(COUNT, dtype))
        seen = OnDevice(machine, np.zeros((10, COUNT), dtype), x.handle)
        ar = comm.partial_allreduce(x, policy=pc.Full(), missed="latest")
        given = rng.standard_normal((10, COUNT)).astype(dtype)
        for number, values in enumerate(given):
            x.write(values)
            ar.contribute(x).wait()
            seen.copy_from(ar.result, number)
        got = seen.get()
        for other in WORLD.allgather(got.tobytes()):
            assert other == got.tobytes()
        exact = np.sum(WORLD.allgather(given.astype("float64")), axis=0)
        np.testing.assert_allclose(
            got, exact, rtol=5e-3 if dtype == "float16" else 1e-5, atol=1e-2 if dtype == "float16" else 1e-5
        )
        ar.leave()
        x.free()
        seen.free()
        del ar


@pytest.mark.mpi(min_size=3)
def test_an_average_of_rounds_that_were_missed():
    """Those beyond the history are in a total; each is divided by its own contributors."""
    rounds, late = 7, WORLD.rank == BAD
    with device_and_node(3) as (machine, comm):
        x = OnDevice(machine, np.zeros(COUNT, "int32"))
        out = OnDevice(machine, np.zeros(COUNT, "int32"), x.handle)
        pair = pc.Quorum(2)
        ar = comm.partial_allreduce(x, op="AVG", policy=pair, history=2, missed="sum")
        if comm.rank < 2:
            for number in range(rounds):
                x.write(np.full(COUNT, 10 * number + 5 * comm.rank))
                assert ar.contribute(x).wait().contributors == (0, 1)
        WORLD.Barrier()
        if late:
            x.write(np.zeros(COUNT))
            result, info = ar.allreduce(x, out)
            assert result is out
            assert (info.missed, info.overrun) == (rounds - 1, True)
            np.testing.assert_array_equal(out.get(), sum((20 * n + 5) // 2 for n in range(rounds)))
        ar.flush()
        ar.leave()
        x.free()
        out.free()
        del ar


@pytest.mark.parametrize(("op", "expected"), [("SUM", 0), ("MAX", -np.inf), ("MIN", np.inf), ("PROD", 1)])
def test_a_flush_that_delivers_nothing_gives_the_identity(op, expected):
    with device_and_node(1) as (machine, comm):
        x = OnDevice(machine, np.zeros(COUNT, "float32"))
        ar = comm.partial_allreduce(x, op=op)
        assert ar.flush().contributors == ()
        np.testing.assert_array_equal(ar.result.to_host(), np.full(COUNT, expected, "float32"))
        ar.leave()
        x.free()
        del ar


@pytest.mark.parametrize("count", [0, 1, 8, 100_003])
def test_any_length(count):
    with device_and_node(2) as (machine, comm):
        x = OnDevice(machine, np.zeros(count, "int64"))
        ar = comm.partial_allreduce(x, policy=pc.Full())
        x.write(np.arange(count))
        ar.contribute(x).wait()
        np.testing.assert_array_equal(ar.result.to_host(), comm.size * np.arange(count))
        ar.leave()
        x.free()
        del ar


def test_streams_that_are_given():
    """A stream of `stream=` comes after the one that the array names, and both before the values are taken."""
    with device_and_node(5) as (machine, comm):
        x = OnDevice(machine, np.zeros(COUNT, "int64"))
        other = OnDevice(machine, np.zeros((4, COUNT), "int64"))
        ar = comm.partial_allreduce(x, policy=pc.Full())
        for number in range(4):
            x.write(np.full(COUNT, number + 1))
            ar.contribute(x, stream=other.handle).wait()
            other.copy_from(ar.result, number)  # on the stream that was given
        np.testing.assert_array_equal(other.get(), comm.size * np.arange(1, 5)[:, None] * np.ones(COUNT, "int64"))
        ar.leave()
        x.free()
        other.free()
        del ar


def test_nothing_is_allocated_after_creation():
    with device_and_node(4) as (machine, comm):
        x = OnDevice(machine, np.zeros(COUNT, "float32"))
        ar = comm.partial_allreduce(x, policy=pc.Solo(), history=2)
        for call in (
            "cuMemAlloc_v2",
            "cuMemHostAlloc",
            "cuModuleLoadData",
            "cuStreamCreateWithPriority",
            "cuEventCreate",
        ):
            machine.driver.fail(call, 1, OUT_OF_MEMORY)
        for _ in range(20):
            ar.allreduce(x)
            _ = ar.result
        ar.flush()
        ar.leave()
        x.free()
        del ar, _


@pytest.mark.parametrize("algorithm", ["auto", "board", "ring"])
def test_an_algorithm_on_one_node(algorithm):
    """Without a board ranks exchange messages, through memory of the host."""
    with device_and_node(6) as (machine, comm):
        x = OnDevice(machine, np.ones(COUNT, "float32"))
        ar = comm.partial_allreduce(x, policy=pc.Full(), algorithm=algorithm)
        is_alone = comm.size == 1 and algorithm == "ring"
        assert ar.algorithm == ("ring" if is_alone else "staged ring" if algorithm == "ring" else "board")
        ar.allreduce(x)
        np.testing.assert_array_equal(ar.result.to_host(), np.full(COUNT, comm.size, "float32"))
        ar.leave()
        x.free()
        del ar


# --- what is refused, on all ranks and before anything is made


def refused(comm, like, *errors: type[Exception], match: str, **options) -> None:
    with pytest.raises(errors, match=match):
        comm.partial_allreduce(like, **options)


@pytest.mark.mpi(min_size=2)
def test_host_and_device_do_not_mix():
    with device_and_node(1) as (machine, comm):
        x = OnDevice(machine, np.zeros(COUNT, "float32"))
        like = np.zeros(COUNT, "float32") if comm.rank == BAD else x
        refused(comm, like, pc.MismatchError, match=r"memory.*")
        x.free()


@pytest.mark.parametrize(
    ("dtype", "options", "match"),
    [
        ("int32", {"op": MPI.BAND}, "op: on a CUDA device expected SUM, AVG, PROD, MIN, MAX of numbers, got BAND"),
        ("complex64", {"op": "PROD"}, "op: on a CUDA device expected SUM, AVG of numbers, got PROD of complex64"),
    ],
)
def test_options_refused(dtype, options, match):
    with device_and_node(1) as (machine, comm):
        x = OnDevice(machine, np.zeros(COUNT, dtype))
        refused(comm, x, ValueError, match=match, **options)
        x.free()


def test_arrays_refused():
    with device_and_node(1) as (machine, comm):
        x = OnDevice(machine, np.zeros(COUNT, "float32"))
        other = OnDevice(machine, np.zeros(COUNT + 1, "float32"))
        wide = OnDevice(machine, np.zeros(COUNT, "float64"))
        fixed = OnDevice(machine, np.zeros(COUNT, "float32"))
        fixed.writable = False
        ar = comm.partial_allreduce(x, name="sum")
        with pytest.raises(BufferError, match=r"^sum: expected an array on CUDA device 0, as at creation, got ndarray"):
            ar.contribute(x.like)
        with pytest.raises(ValueError, match=r"^sum: expected shape \(150,\) \(150 elements\), got \(151,\)"):
            ar.contribute(other)
        with pytest.raises(TypeError, match=r"^sum: dtype: expected float32, got float64"):
            ar.contribute(wide)
        with pytest.raises(BufferError, match="out: expected a writable array"):
            ar.allreduce(x, fixed)
        with pytest.raises(RuntimeError, match="sum: no result yet"):
            _ = ar.result
        host = comm.partial_allreduce(x.like)
        with pytest.raises(BufferError, match=r"copy it to the host first; .* with such an array"):
            host.contribute(x)
        host.close()
        ar.leave()
        for array in (x, other, wide, fixed):
            array.free()
        del ar, host


# --- failures


@pytest.mark.parametrize(
    ("call", "nth"),
    [
        ("cuMemAlloc_v2", 1),
        ("cuMemAlloc_v2", 3),
        ("cuStreamCreateWithPriority", 2),
        ("cuIpcGetMemHandle", 1),
        ("cuIpcOpenMemHandle_v2", 1),
    ],
)
def test_what_fails_on_one_rank_fails_on_all(call, nth):
    if WORLD.size == 1 and call.startswith("cuIpc"):
        pytest.skip("one rank shares nothing")
    with device_and_node(6) as (machine, comm):
        x = OnDevice(machine, np.zeros(COUNT, "float32"))
        if comm.rank == BAD:
            machine.driver.fail(call, nth, OUT_OF_MEMORY)
        with pytest.raises(RuntimeError, match=f"^the board of 'sum': on rank {BAD}: CUDA: {call}: "):
            comm.partial_allreduce(x, name="sum")
        x.free()


@pytest.mark.mpi(min_size=2)
def test_memory_that_cannot_be_opened_says_why():
    with device_and_node(16) as (machine, comm):
        x = OnDevice(machine, np.zeros(COUNT, "float32"))
        if comm.rank == BAD:
            machine.driver.fail("cuIpcOpenMemHandle_v2", 1, OUT_OF_MEMORY)
        with pytest.raises(RuntimeError, match=r"each rank must see the devices of .*the memory of local rank \d+"):
            comm.partial_allreduce(x, name="sum")
        x.free()


def test_one_rank_shares_nothing():
    with simulated_device(17) as machine, pc.Communicator(MPI.COMM_SELF) as comm:
        x = OnDevice(machine, np.zeros(COUNT, "float32"))
        machine.driver.fail("cuIpcGetMemHandle", 1, OUT_OF_MEMORY)
        x.write(np.ones(COUNT))
        with comm.partial_allreduce(x) as ar:
            ar.contribute(x).wait()
            assert ar.result.to_host().tolist() == [1.0] * COUNT
        x.free()
        del ar


def test_kernels_are_loaded_once():
    with simulated_device(18) as machine:
        x = OnDevice(machine, np.zeros(COUNT, "float32"))
        for _ in range(2):
            with pc.Communicator(MPI.COMM_SELF) as comm, comm.partial_allreduce(x):
                pass
            gc.collect()
            machine.driver.fail("cuModuleLoadData", 1, OUT_OF_MEMORY)
        x.free()


@pytest.mark.parametrize("nth", [3, 11])
@pytest.mark.parametrize("policy", [pc.Full(), pc.Solo()])
def test_a_fault_on_one_rank_is_named_by_the_others(nth, policy):
    text = r"CUDA: \w+: CUDA_ERROR_ILLEGAL_ADDRESS \(simulated driver\)"
    with failing_device(nth) as machine:
        with pc.Communicator(WORLD, ranks_per_node="all", timeout=LIMIT) as comm:
            x = OnDevice(machine, np.zeros(COUNT, "float32"))
            ar = comm.partial_allreduce(x, policy=policy)
            if comm.rank == BAD:
                machine.driver.fault(nth)
            with pytest.raises(RuntimeError, match=f"^({text}|rank {BAD}: {text})"):
                until = time.monotonic() + LIMIT
                while time.monotonic() < until:
                    ar.allreduce(x)
            with pytest.raises(RuntimeError, match=f"^rank {BAD}: {text}"):
                ar.contribute(x)
            ar.leave()
        WORLD.Barrier()  # nobody ends while another is being told
        del ar


@pytest.mark.mpi(min_size=2)
def test_a_rank_that_does_not_come_is_named():
    with device_and_node(8) as (machine, comm):
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


def test_checks_compare_results_on_the_host(monkeypatch):
    monkeypatch.setenv("PYC_CHECK", "1")
    with device_and_node(9) as (machine, comm):
        x = OnDevice(machine, np.zeros(COUNT, "float32"))
        out = OnDevice(machine, np.zeros(COUNT, "float32"), x.handle)
        ar = comm.partial_allreduce(x, policy=pc.Full())
        for number in range(3):
            x.write(np.full(COUNT, number + 0.5))
            ar.allreduce(x, out)
            np.testing.assert_array_equal(out.get(), comm.size * (number + 0.5))
        ar.flush()
        ar.leave()
        x.free()
        out.free()
        del ar
