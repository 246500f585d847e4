"""P-Reduces of arrays on a device in groups that the application names, among processes; simulated driver.

Nothing here needs a GPU, or ran on one.
"""

from __future__ import annotations

import time

import numpy as np
import pytest
from device_programs import OnDevice, device_and_ranks, failing_device
from devices import HAS_CUDA
from mpi4py import MPI
from oracle import LIMIT

import pycollectives as pc

WORLD = MPI.COMM_WORLD
COUNT = 150
LONG = 12_000
"""So many float32 go by messages on the host too."""
BAD = WORLD.size - 1
OUT_OF_MEMORY = 2

pytestmark = pytest.mark.skipif(not HAS_CUDA, reason="built with PYC_CUDA=OFF")


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
@pytest.mark.parametrize("count", [0, 1, COUNT, LONG])
def test_a_group_has_the_bits_of_messages_of_the_host(dtype, count):
    """Made late, on the application's stream, and read on it at once; longer and shorter than the ones before."""
    with device_and_ranks(14) as (machine, comm):
        rng = np.random.default_rng(comm.rank)
        x, host = OnDevice(machine, np.zeros(count, dtype)), np.zeros(count, dtype)
        seen = OnDevice(machine, np.zeros((6, count), dtype), x.handle)
        for number in range(6):
            group = range(comm.size) if number % 3 else sorted({number % comm.size, (number + 1) % comm.size})
            values = (100 * rng.standard_normal(count)).astype(dtype)
            x.write(np.zeros(count))
            x.write(values)
            host[:] = values
            if comm.rank in group:
                comm.preduce(x, group)
                comm.preduce(host, group)
            seen.copy_from(x, number)
            assert seen.get()[number].tobytes() == host.tobytes()
        x.free()
        seen.free()


def test_a_long_group_goes_in_pieces():
    count = 1_000_003  # of 4 bytes: in three, or as the algorithm cuts them
    with device_and_ranks(20) as (machine, comm):
        x = OnDevice(machine, np.zeros(count, "int32"))
        for number in range(2):
            x.write(np.arange(count) + comm.rank + number)
            comm.preduce(x, range(comm.size), "SUM")
            total = comm.size * (np.arange(count) + number) + sum(range(comm.size))
            np.testing.assert_array_equal(x.get(), total.astype("int32"))
        x.free()


@pytest.mark.parametrize("op", ["SUM", "MAX"])
def test_a_group_takes_operations_and_streams(op):
    with device_and_ranks(15) as (machine, comm):
        x, other = OnDevice(machine, np.zeros(COUNT)), OnDevice(machine, np.zeros((4, COUNT)))
        for number in range(4):
            x.write(np.full(COUNT, number + comm.rank))
            comm.preduce(x, range(comm.size), op, stream=other.handle)
            other.copy_from(x, number)
            machine.finish()
        ranks = np.arange(4)[:, None] + np.arange(comm.size)
        expected = ranks.sum(axis=1) if op == "SUM" else ranks.max(axis=1)
        np.testing.assert_array_equal(other.get(), np.repeat(expected[:, None], COUNT, axis=1))
        x.free()
        other.free()


def test_a_group_refuses():
    with device_and_ranks(16) as (machine, comm):
        x = OnDevice(machine, np.zeros(COUNT, "int32"))
        with pytest.raises(ValueError, match=r"op: on a CUDA device expected SUM, AVG, .* got BAND of int32"):
            comm.preduce(x, range(comm.size), "BAND")
        with pytest.raises(ValueError, match="preduce: stream: expected None, as x is on the host, got 1"):
            comm.preduce(np.zeros(2), range(comm.size), stream=1)
        x.writable = False
        with pytest.raises(BufferError, match="preduce: expected a writable array, got one that is read-only"):
            comm.preduce(x, range(comm.size))
        x.free()


@pytest.mark.mpi(min_size=2)
def test_a_group_is_on_the_host_or_on_devices():
    with device_and_ranks(17) as (machine, comm):
        x = OnDevice(machine, np.zeros(COUNT, "float32"))
        with pytest.raises(pc.MismatchError, match="AVG of 150 float32 on a device"):
            comm.preduce(np.zeros(COUNT, "float32") if comm.rank == BAD else x, range(comm.size), timeout=LIMIT)
        WORLD.Barrier()
        x.free()


@pytest.mark.mpi(min_size=2)
def test_a_group_whose_stream_is_not_done_in_time_may_be_called_again():
    with device_and_ranks(18) as (machine, comm):
        x = OnDevice(machine, np.zeros(COUNT))
        for value in range(200):
            x.write(np.full(COUNT, value + comm.rank))
        with pytest.raises(pc.StallError, match="preduce: the stream on which the values are made"):
            comm.preduce(x, range(comm.size), timeout=0)
        comm.preduce(x, range(comm.size))
        np.testing.assert_array_equal(x.get(), np.full(COUNT, 199 + (comm.size - 1) / 2))
        x.free()


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("call", ["cuMemHostAlloc", "cuStreamCreateWithPriority"])
def test_a_member_without_memory_is_named(call):
    with device_and_ranks(19) as (machine, comm):
        x = OnDevice(machine, np.zeros(COUNT))
        if comm.rank == BAD:
            machine.driver.fail(call, 1, OUT_OF_MEMORY)
        who = "" if comm.rank == BAD else f"rank {BAD}: "
        with pytest.raises(RuntimeError, match=f"^{who}CUDA: {call}: CUDA_ERROR_OUT_OF_MEMORY"):
            comm.preduce(x, range(comm.size), timeout=LIMIT)
        with pytest.raises(pc.ClosedError, match="preduce is unusable on this communicator: an earlier P-Reduce"):
            comm.preduce(x, range(comm.size))
        assert len(comm.mpi_comm.allgather(0)) == comm.size
        x.free()


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("nth", [1, 2, 3, 5, 8, 13, 40])
def test_a_fault_in_a_group_is_named_by_the_others(nth):
    """Until then all averages are right. All can close, and the communicator ends."""
    text = r"CUDA: \w+: CUDA_ERROR_ILLEGAL_ADDRESS \(simulated driver\)"
    with failing_device(nth) as machine:
        with pc.Communicator(WORLD, timeout=LIMIT) as comm:
            x = OnDevice(machine, np.zeros(COUNT))
            comm.preduce(x, range(comm.size))
            if comm.rank == BAD:
                machine.driver.fault(nth)
            expected = f"^{text}" if comm.rank == BAD else rf"rank {BAD}: {text}|rank \d+ gave up an earlier one"
            until = time.monotonic() + LIMIT
            with pytest.raises((RuntimeError, pc.ClosedError), match=expected):
                while time.monotonic() < until:
                    x.write(np.full(COUNT, comm.rank))
                    comm.preduce(x, range(comm.size))
                    assert comm.rank == BAD or (x.get() == (comm.size - 1) / 2).all()
        WORLD.Barrier()


@pytest.mark.mpi(min_size=2)
def test_a_device_that_has_failed_before_its_first_group_is_named_by_the_others():
    with failing_device(1) as machine:
        with pc.Communicator(WORLD, timeout=LIMIT) as comm:
            x = OnDevice(machine, np.zeros(COUNT))
            if comm.rank == BAD:
                machine.driver.fault(1)
                x.write(np.ones(COUNT))
                machine.finish()
            who = "" if comm.rank == BAD else f"rank {BAD}: "
            with pytest.raises(RuntimeError, match=rf"^{who}CUDA: \w+: CUDA_ERROR_ILLEGAL_ADDRESS"):
                comm.preduce(x, range(comm.size), timeout=LIMIT)
        WORLD.Barrier()
