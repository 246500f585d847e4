"""Pairwise averaging of models on a device, in the shape of this run: simulated driver, whose work is done late.

Each rank has a driver, with streams that are done in an order of their own. Nothing here needs a GPU, or ran on one.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from device_programs import OnDevice, device_and_ranks, failing_device
from devices import HAS_CUDA
from mpi4py import MPI
from pairwise_programs import check_bits

import pycollectives as pc
from pycollectives import topology

WORLD = MPI.COMM_WORLD
LIMIT = 30.0
COUNT = 150
SEGMENT = 1 << 20
"""Elements of float32 in a segment."""
BAD = WORLD.size - 1
OUT_OF_MEMORY = 2

pytestmark = pytest.mark.skipif(not HAS_CUDA, reason="built with PYC_CUDA=OFF")
up_to_four = pytest.mark.skipif(WORLD.size > 4, reason="tested with up to four ranks")


@pytest.fixture(autouse=True)
def in_some_shapes():
    """Of the passes of one process, in which the environment says the shape."""
    is_flat = os.environ.get("PYC_RANKS_PER_NODE") == "1"
    if WORLD.size in (5, 7) or (is_flat and WORLD.size in (2, 3)):
        pytest.skip("tested flat with 1, 4 and 8 ranks, and in other shapes")


# --- the arithmetic


@pytest.mark.parametrize(
    ("dtype", "acceleration", "per_node"),
    [("float32", None, None), ("float64", "a2cid2", None), ("float32", "a2cid2", 1), ("float16", None, None)],
)
def test_models_have_the_bits_of_the_host(dtype, acceleration, per_node):
    """In the shape of this run, and by messages alone."""
    with device_and_ranks(1, per_node) as (machine, comm):
        check_bits(machine, comm, dtype, acceleration)


@pytest.mark.parametrize(
    ("dtype", "count", "acceleration"),
    [
        pytest.param("float32", SEGMENT + 100, None, marks=up_to_four),
        ("float32", 1, "a2cid2"),
        ("float64", 10, None),
        ("float16", 10, "a2cid2"),
    ],
)
def test_mean_of_all_that_was_applied(dtype, count, acceleration):
    """Deltas are made late, and overwritten at once; models are read while they are averaged."""
    steps = 2 if count > SEGMENT else 10
    with device_and_ranks(2) as (machine, comm):
        x = OnDevice(machine, np.full(count, comm.rank, dtype))
        seen = OnDevice(machine, np.zeros(count, dtype), x.handle)
        with comm.pairwise_averaging(x, topology="ring", acceleration=acceleration, rate=1000) as model:
            for step in range(steps):
                x.write(np.full(count, step % 3))
                model.apply(x)
                x.write(np.full(count, -1000))
                seen.write(np.full(count, -1000))
                assert model.read(seen) is seen
            assert abs(seen.get()).max() < 1000
            mean = model.equalize().to_host()
            model.read(seen)
            equal = seen.get()
        np.testing.assert_array_equal(mean, equal)
        assert comm.is_same_on_all_ranks(equal)
        expected = (comm.size - 1) / 2 + sum(step % 3 for step in range(steps))
        np.testing.assert_allclose(equal.astype(float), expected, rtol=1e-3 if dtype == "float16" else 1e-5)
        x.free()
        seen.free()
        del model


@up_to_four
def test_ranks_come_together_while_they_do_nothing():
    with device_and_ranks(3) as (machine, comm):
        x = OnDevice(machine, np.full(COUNT, comm.rank, "float64"))
        with comm.pairwise_averaging(x, topology="complete") as model:
            mean = (comm.size - 1) / 2
            for _ in range(2000):
                apart = comm.mean(np.abs(model.read().to_host() - mean).max())
                if apart <= 0.01:
                    break
                time.sleep(0.005)
            assert apart <= 0.01
        x.free()
        del model


@up_to_four
def test_what_is_shown_is_the_model_until_the_next_read():
    with device_and_ranks(4) as (machine, comm):
        x = OnDevice(machine, np.zeros(COUNT, "float32"))
        rows = OnDevice(machine, np.zeros((5, COUNT), "float32"), x.handle)
        model = comm.pairwise_averaging(x, pace="per_step", topology="ring")
        WORLD.Barrier()
        for number in range(5):
            rows.copy_from(model.read(), number)  # late, on the stream of `like`, which the next read waits for
            x.write(np.ones(COUNT))
            model.apply(x)
        first, *_, last = rows.get()
        np.testing.assert_array_equal(first, np.zeros(COUNT) if comm.size == 1 else np.full(COUNT, first[0]))
        if comm.size == 1:
            np.testing.assert_array_equal(last, np.full(COUNT, 4.0))
        assert (rows.get() == rows.get()[:, :1]).all()
        model.equalize()
        model.leave()
        for array in (x, rows):
            array.free()
        del model


@up_to_four
def test_streams_that_are_given():
    """A stream of `stream=` comes after the one that the array names, and both before the values are taken."""
    with device_and_ranks(5) as (machine, comm):
        x = OnDevice(machine, np.zeros(COUNT, "float64"))
        other = OnDevice(machine, np.zeros(COUNT, "float64"))
        with comm.pairwise_averaging(x, topology="ring", rate=1000) as model:
            for number in range(4):
                x.write(np.full(COUNT, number))
                model.apply(x, stream=other.handle)
                other.write(np.full(COUNT, -1))
                model.read(other, stream=x.handle)
                assert (other.get() >= 0).all()
            np.testing.assert_allclose(model.equalize().to_host(), 6)
        x.free()
        other.free()
        del model


@pytest.mark.mpi(min_size=2)
@up_to_four
def test_a_stream_that_is_stuck_holds_no_average_up():
    with device_and_ranks(9) as (machine, comm):
        x = OnDevice(machine, np.ones(COUNT, "float32"))
        with comm.pairwise_averaging(x, topology="complete", rate=1000) as model:
            machine.driver.hold(x.handle)
            x.write(np.full(COUNT, 3))
            with ThreadPoolExecutor(1) as pool:
                call = pool.submit(model.apply, x)
                enough, until = model.statistics().exchanges + 3, time.monotonic() + LIMIT
                while model.statistics().exchanges < enough:
                    assert time.monotonic() < until, "no averages"
                    time.sleep(0.001)
                assert not call.done()
                WORLD.Barrier()  # who equalizes averages no more
                machine.driver.let_go(x.handle)
                call.result(LIMIT)
            np.testing.assert_array_equal(model.equalize().to_host(), 4)
        x.free()
        del model, call


@up_to_four
def test_ranks_that_apply_rarely_count_more():
    """Two numbers follow the model, which begin at zero."""
    with device_and_ranks(6) as (machine, comm):
        x = OnDevice(machine, np.ones(COUNT, "float32"))
        with comm.pairwise_averaging(x, weighting="frequency", topology="ring") as model:
            for _ in range(30):
                model.apply(x)
                time.sleep(0.002 * (comm.rank + 1))
            mean = model.equalize().to_host()
        assert (mean == mean[0]).all()
        assert (mean[0] == 31) == (comm.size == 1)  # it is 31 too where all count alike
        x.free()
        del model


@up_to_four
def test_nothing_is_allocated_after_creation():
    with device_and_ranks(7) as (machine, comm):
        x = OnDevice(machine, np.zeros(COUNT, "float16"))
        with comm.pairwise_averaging(x, acceleration="a2cid2", rate=1000) as model:
            WORLD.Barrier()
            for call in ("cuMemAlloc_v2", "cuMemHostAlloc", "cuStreamCreateWithPriority", "cuEventCreate"):
                machine.driver.fail(call, 1, OUT_OF_MEMORY)
            for _ in range(10):
                model.apply(x)
                model.read()
            model.equalize()
        x.free()
        del model


@up_to_four
def test_early_leavers():
    """Every third rank closes at once; its memory stays until nobody averages with it."""
    with device_and_ranks(8) as (machine, comm):
        x = OnDevice(machine, np.ones(COUNT, "float32"))
        model = comm.pairwise_averaging(x, topology="complete", rate=2000)
        if comm.rank % 3 == 2:
            model.leave()
            with pytest.raises(pc.ClosedError):
                model.read()
        else:
            for _ in range(20):
                model.apply(x)
            assert (model.equalize().to_host() > 1).all()
            model.leave()
        x.free()
        del model


# --- what is refused, on all ranks and before anything is made


@pytest.mark.mpi(min_size=2)
@up_to_four
def test_host_and_device_do_not_mix():
    with device_and_ranks(1) as (machine, comm):
        x = OnDevice(machine, np.zeros(COUNT, "float32"))
        like = np.zeros(COUNT, "float32") if comm.rank == BAD else x
        with pytest.raises(pc.MismatchError, match=r"memory: .*CUDA device"):
            comm.pairwise_averaging(like)
        x.free()


@up_to_four
def test_models_refused():
    with device_and_ranks(1) as (machine, comm):
        integers = OnDevice(machine, np.zeros(COUNT, "int32"))
        with pytest.raises(TypeError, match="initial: expected elements of float16"):
            comm.pairwise_averaging(integers)
        x = OnDevice(machine, np.zeros(COUNT, "float32"))
        for make in (comm.neighbor_averaging, comm.push_sum):
            with pytest.raises(BufferError, match=r"like: expected host memory.* or use pairwise_averaging"):
                make(x, topology="complete")
        for array in (integers, x):
            array.free()


@up_to_four
def test_arrays_refused():
    with device_and_ranks(1) as (machine, comm):
        x = OnDevice(machine, np.zeros(COUNT, "float32"))
        other = OnDevice(machine, np.zeros(COUNT + 1, "float32"))
        wide = OnDevice(machine, np.zeros(COUNT, "float64"))
        fixed = OnDevice(machine, np.zeros(COUNT, "float32"))
        fixed.writable = False
        with comm.pairwise_averaging(x, name="w") as model:
            for call in (model.apply, model.read):
                with pytest.raises(BufferError, match=r"^w: expected an array on CUDA device 0, .* got ndarray"):
                    call(x.like)
                with pytest.raises(ValueError, match=r"^w: expected shape \(150,\) \(150 elements\), got \(151,\)"):
                    call(other)
                with pytest.raises(TypeError, match=r"^w: dtype: expected float32, got float64"):
                    call(wide)
            with pytest.raises(BufferError, match=r"^w: expected a writable array"):
                model.read(fixed)
            model.apply(fixed)
        with comm.pairwise_averaging(x.like, name="h") as on_host:
            with pytest.raises(BufferError, match=r"^h: expected host memory"):
                on_host.apply(x)
            with pytest.raises(ValueError, match=r"^h: stream: expected None"):
                on_host.read(stream=x.handle)
        for array in (x, other, wide, fixed):
            array.free()
        del model, call


# --- failures


@up_to_four
@pytest.mark.parametrize(
    ("call", "nth"),
    [
        ("cuMemAlloc_v2", 1),
        ("cuMemAlloc_v2", 3),
        ("cuMemHostAlloc", 1),
        ("cuIpcOpenMemHandle_v2", 1),
        ("cuMemHostAlloc", 2),
    ],
)
def test_what_fails_on_one_rank_fails_on_all(call, nth):
    with device_and_ranks(6) as (machine, comm):
        nodes = comm.nodes
        alone = nodes.count(nodes[BAD]) == 1
        has_messages = any(nodes[other] != nodes[BAD] for other in topology.complete(comm.size).in_neighbors(BAD))
        if call == "cuIpcOpenMemHandle_v2" and alone:
            pytest.skip("one rank of a node opens nothing")
        if (call, nth) == ("cuMemHostAlloc", 2) and not has_messages:
            pytest.skip("ranks of one node send nothing")
        x = OnDevice(machine, np.zeros(COUNT, "float32"))
        if comm.rank == BAD:
            machine.driver.fail(call, nth, OUT_OF_MEMORY)
        with pytest.raises(RuntimeError, match=f"^the memory of 'w': on rank {BAD}: CUDA: {call}: "):
            comm.pairwise_averaging(x, topology="complete", name="w")
        x.free()


@up_to_four
@pytest.mark.parametrize("nth", [1, 40])
def test_a_fault_on_one_rank_is_named_once_by_the_others_who_go_on(nth):
    text = r"CUDA: \w+: CUDA_ERROR_ILLEGAL_ADDRESS \(simulated driver\)"
    with failing_device(nth) as machine:
        with pc.Communicator(WORLD, timeout=LIMIT) as comm:
            x = OnDevice(machine, np.zeros(COUNT, "float32"))
            model = comm.pairwise_averaging(x, topology="complete", rate=1000, name="w")
            others = text if comm.nodes[comm.rank] == comm.nodes[BAD] else "its device has failed"
            first = f"({text}|'w': rank {BAD}: {text})" if comm.rank == BAD else f"'w': rank {BAD}: {others}; this call"
            if comm.rank == BAD:
                machine.driver.fault(nth)
            if WORLD.size > 1 or comm.rank == BAD:
                with pytest.raises(RuntimeError, match=f"^{first}"):
                    until = time.monotonic() + LIMIT
                    while time.monotonic() < until:
                        model.apply(x)
                        model.read()
            if comm.rank == BAD:
                with pytest.raises(RuntimeError, match=f"^'w': rank {BAD}: {text}"):
                    model.apply(x)
                with pytest.raises(RuntimeError, match=f"^'w': rank {BAD}: {text}"):
                    model.read()
                model.leave()
            else:
                for _ in range(5):
                    model.apply(x)
                values = model.equalize().to_host()
                assert np.isfinite(values).all()
                model.leave()
        WORLD.Barrier()  # nobody ends while another is being told
        del model
