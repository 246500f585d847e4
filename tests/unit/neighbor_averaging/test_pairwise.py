"""Pairwise averaging on ranks as threads: what is promised of it."""

import os
import signal
import threading
import time

import numpy as np
import pytest
from gate import Gate

import pycollectives as pc
from pycollectives.testing import loopback, run_ranks

SHAPES = {"flat": 1, "mixed": 2, "board": "all"}


@pytest.fixture(params=SHAPES)
def shape(request):
    return {"ranks_per_node": SHAPES[request.param]}


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 8])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_equalize_gives_the_mean(size, dtype, shape):
    def program(comm):
        start = np.full((3, 4), comm.rank, dtype)
        with comm.pairwise_averaging(start) as model:
            model.equalize()
            return model.read()

    models = run_ranks(size, program, **shape)
    for model in models:
        assert model.dtype == dtype
        assert model.shape == (3, 4)
        np.testing.assert_array_equal(model, models[0])  # the same bits on all ranks
        # Averages of pairs before `equalize` may have rounded: (0.125 + 3) / 2 and so on.
        np.testing.assert_allclose(model, (size - 1) / 2, rtol=16 * np.finfo(dtype).eps)


@pytest.mark.parametrize("size", [2, 3, 5, 8])
@pytest.mark.parametrize("pace", ["continuous", "per_step"])
@pytest.mark.parametrize("acceleration", [None, "a2cid2"])
def test_sums_are_kept_while_all_apply(size, pace, acceleration, shape):
    """40 000 elements in segments; deltas of small integers; the mean is exact to rounding."""
    steps = 30

    def program(comm):
        random = np.random.default_rng(comm.rank)
        total = np.zeros(40_000)
        with comm.pairwise_averaging(total, topology="ring", pace=pace, acceleration=acceleration, seed=3) as model:
            for _ in range(steps):
                delta = random.integers(-8, 9, total.size).astype(float)
                model.apply(delta)
                total += delta
                model.read()
            end = time.monotonic() + 30
            while pace == "continuous" and not model.statistics().exchanges and time.monotonic() < end:
                time.sleep(0.001)
            statistics = model.statistics()
            model.equalize()
            return total, model.read(), statistics

    outcomes = run_ranks(size, program, **shape)
    mean = sum(total for total, _, _ in outcomes) / size
    for _, model, statistics in outcomes:
        np.testing.assert_allclose(model, mean, atol=1e-9)
        np.testing.assert_array_equal(model, outcomes[0][1])
        assert statistics.applied == steps
    if pace == "continuous":
        assert sum(statistics.exchanges for *_, statistics in outcomes) > 0


def test_models_come_together_without_equalize(shape):
    def program(comm):
        model = comm.pairwise_averaging(np.full(10, float(comm.rank)), topology="ring")
        # All go on until all are there: a rank may have the mean by chance and leave it again.
        for _ in range(4000):
            apart = comm.mean(np.abs(model.read() - 1.5).max())
            if apart <= 1e-3:
                break
            time.sleep(0.01)
        model.leave()
        return apart

    assert max(run_ranks(4, program, **shape)) <= 1e-3


def test_neither_read_nor_apply_waits_for_a_rank_that_sleeps(shape):
    """Rank 0's application sleeps for a second; the others take many steps meanwhile, and average with it."""

    def program(comm):
        with comm.pairwise_averaging(np.zeros(1000), topology="complete") as model:
            if comm.rank == 0:
                time.sleep(1.0)
                return model.statistics().exchanges
            longest = 0.0
            end = time.monotonic() + 0.8
            while time.monotonic() < end:
                begin = time.monotonic()
                model.apply(np.ones(1000))
                model.read()
                longest = max(longest, time.monotonic() - begin)
                time.sleep(0.005)
            return longest

    exchanges, *longest = run_ranks(4, program, **shape)
    assert exchanges > 0
    assert max(longest) < 0.7  # loose: this machine may be busy; waiting would have taken a second


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_copy_is_of_one_moment(dtype):
    """One lock for the model: all elements are alike in every copy, for all are in everything that is applied."""

    def program(comm):
        with comm.pairwise_averaging(np.zeros(100_000, dtype), topology="ring", lock="model") as model:
            for _ in range(100):
                model.apply(np.full(100_000, comm.rank + 1, dtype))
                copy = model.read()
                assert copy.min() == copy.max()

    run_ranks(3, program)


def test_any_thread_may_apply(shape):
    def program(comm):
        with comm.pairwise_averaging(np.zeros(20_000), topology="ring") as model:
            threads = [
                threading.Thread(target=lambda: [model.apply(np.ones(20_000)) for _ in range(20)]) for _ in range(3)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            model.equalize()
            return model.read()

    for model in run_ranks(2, program, **shape):
        np.testing.assert_allclose(model, 60)


def test_averages_without_a_rest_leave_nothing_out(shape):
    """All ranks begin averages of several segments all the time: locks in one order, so that none waits in a circle."""

    def program(comm):
        with comm.pairwise_averaging(np.zeros(1 << 17), topology="complete", rate=1e6) as model:
            end = time.monotonic() + 30
            while model.statistics().begun < 50 and time.monotonic() < end:
                time.sleep(0.01)
            comm.mean(0.0)
            statistics = model.statistics()
            return statistics.begun, statistics.skipped / (16 * statistics.exchanges)

    for begun, share in run_ranks(3, program, **shape):
        assert begun >= 10  # a sanitizer takes most of the time
        assert shape["ranks_per_node"] != "all" or share < 0.2  # near 0; a lock is given up if its owner has no core


def test_a_rank_that_has_closed_has_no_part_in_equalize(shape):
    """Rank 0 leaves at once; the others' mean is of their models alone, which nothing has averaged."""

    def program(comm):
        model = comm.pairwise_averaging(np.full(5, float(comm.rank)), topology="complete", pace="per_step")
        comm.mean(0.0)
        if comm.rank == 0:
            model.leave()
            with pytest.raises(pc.ClosedError):
                model.read()
            return None
        model.equalize()
        result = model.read()[0]
        model.leave()
        return result

    assert run_ranks(3, program, **shape) == [None, 1.5, 1.5]


def test_communicator_closes_what_is_open(shape):
    """Nobody waits for a rank that has closed early."""

    def program(comm):
        model = comm.pairwise_averaging(np.zeros(5), topology="ring")
        if comm.rank == 1:
            model.leave()
        model_of = comm
        return model_of.size

    assert run_ranks(3, program, **shape) == [3, 3, 3]


def test_an_exception_in_the_block_closes_at_once(shape):
    def program(comm):
        with (
            pytest.raises(ZeroDivisionError),
            comm.pairwise_averaging(np.zeros(5), topology="ring") as model,
        ):
            raise ZeroDivisionError
        return model.closed

    assert run_ranks(3, program, **shape) == [True] * 3


def test_equalize_names_who_has_not_come_and_goes_on_when_it_is_called_again(shape):
    """What is applied between the calls is in the mean; rank 0 leaves, and counts as arrived."""

    def program(comm):
        model = comm.pairwise_averaging(np.zeros(5), topology="ring")
        if comm.rank == 0:
            comm.mean(0.0)
            model.leave()
            return None
        with pytest.raises(pc.StallError, match="rank 0"):
            model.equalize(timeout=2)
        model.apply(np.ones(5))
        comm.mean(0.0)
        mean = model.equalize(timeout=30)
        np.testing.assert_array_equal(model.read(), mean)
        model.leave()
        return mean

    _, of_1, of_2 = run_ranks(3, program, **shape)
    np.testing.assert_array_equal(of_1, of_2)
    assert 0 < of_1[0] <= 1  # less if rank 0, which has nothing, averaged with a rank before it left


@pytest.mark.parametrize("acceleration", [None, "a2cid2"])
def test_what_threads_apply_during_equalize_is_not_lost(shape, acceleration):
    """All that was applied is in the mean in the end, exactly: one of powers of two that all ranks have."""

    def program(comm):
        model = comm.pairwise_averaging(np.zeros(40_000), topology="ring", acceleration=acceleration)
        stop = threading.Event()
        applied = 0

        def work():
            nonlocal applied
            while not stop.is_set() and applied < 1 << 20:
                model.apply(np.ones(40_000))
                applied += 1

        worker = threading.Thread(target=work)
        worker.start()
        for _ in range(5):
            model.equalize(timeout=30)
        stop.set()
        worker.join()
        model.equalize(timeout=30)
        values = model.read()
        total = 2 * comm.mean(float(applied))
        model.leave()
        return values, total

    for values, total in run_ranks(2, program, **shape):
        np.testing.assert_allclose(values, total / 2, rtol=1e-12 if acceleration else 0, atol=0)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"initial": np.zeros(3, np.int32)}, TypeError, "initial: expected elements of float16"),
        ({"topology": "circle"}, ValueError, "topology: expected"),
        ({"topology": 3}, TypeError, "topology: expected a graph such as"),
        ({"topology": pc.topology.ring(5)}, ValueError, "topology: .* as many ranks as the communicator, 2, got"),
        ({"topology": "one-peer-exponential"}, TypeError, "does not vary"),
        ({"pace": "often"}, ValueError, "pace: expected 'continuous' or 'per_step'"),
        ({"rate": -1}, ValueError, "rate: expected a positive"),
        ({"rate": "x"}, TypeError, "rate: expected"),
        ({"rate": True}, TypeError, "rate: expected"),
        ({"rate": 5, "pace": "per_step"}, ValueError, "rate: expected None"),
        ({"order": "up"}, ValueError, "order: expected"),
        ({"seed": -1}, ValueError, "seed: expected"),
        ({"acceleration": "x"}, ValueError, "acceleration: expected"),
        ({"weighting": "x"}, ValueError, "weighting: expected"),
        ({"lock": "x"}, ValueError, "lock: expected"),
        ({"name": ""}, ValueError, "name: expected"),
    ],
)
def test_refused_arguments(arguments, error, text):
    def program(comm):
        with pytest.raises(error, match=text):
            comm.pairwise_averaging(**{"initial": np.zeros(3), **arguments})

    run_ranks(2, program)


def test_arguments_differ():
    def program(comm):
        graphs = r"topology: ring of 4 ranks, 4 edges, digest \w+ on .*, complete of 4 ranks, 6 edges, digest \w+ on"
        with pytest.raises(pc.MismatchError, match=graphs):
            comm.pairwise_averaging(np.zeros(3), topology=["ring", "complete"][comm.rank % 2])
        with pytest.raises(pc.MismatchError, match="count"):
            comm.pairwise_averaging(np.zeros(3 + comm.rank))

    run_ranks(4, program)


def test_refused_buffers():
    def program(comm):
        with comm.pairwise_averaging(np.zeros((2, 3))) as model:
            with pytest.raises(ValueError, match="expected shape"):
                model.apply(np.zeros(5))
            with pytest.raises(TypeError, match="float64"):
                model.apply(np.zeros((2, 3), np.float32))
            with pytest.raises(BufferError, match="contiguous"):
                model.apply(np.zeros(12)[::2])
            locked = np.zeros((2, 3))
            locked.flags.writeable = False
            with pytest.raises(BufferError, match="read-only"):
                model.read(locked)
            model.apply(np.zeros(6))  # any shape of as many elements
            out = np.empty((2, 3))
            assert model.read(out) is not None
            assert model.read().shape == (2, 3)

    run_ranks(2, program)


def test_no_elements(shape):
    def program(comm):
        with comm.pairwise_averaging(np.zeros(0), topology="ring") as model:
            model.apply(np.zeros(0))
            model.equalize()
            return model.read().size

    assert run_ranks(3, program, **shape) == [0, 0, 0]


def test_what_it_shows():
    def program(comm):
        with comm.pairwise_averaging(np.zeros(3, np.float32), topology="ring", name="weights") as model:
            assert repr(model) == "<PairwiseAveraging 'weights' of 3 float32 <Topology ring of 4 ranks, 4 edges>>"
            assert model.count == 3
            assert model.dtype == np.float32
        assert repr(model).endswith("closed>")

    run_ranks(4, program)


def test_a_signal_handler_that_applies_in_the_middle_of_a_measurement_is_refused():
    """It runs in the thread that has the lock of the weights, and would wait for itself."""
    count = 1 << 12  # one segment, with what is measured
    gate = Gate(np.full(count, 4.0))
    said = []

    def apply_too(number, frame):
        with pytest.raises(RuntimeError) as refused:
            model.apply(np.ones(count))
        said.append(str(refused.value))

    before = signal.signal(signal.SIGALRM, apply_too)
    try:
        with gate, loopback(1)[0] as comm:
            model = comm.pairwise_averaging(np.zeros(count), weighting="frequency", name="own")
            other = threading.Thread(target=model.apply, args=(gate.array,))
            other.start()
            gate.wait_until_reached(other)
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGALRM)).start()
            threading.Timer(0.6, gate.open).start()
            model.apply(np.ones(count))
            other.join()
            np.testing.assert_array_equal(model.read(), np.full(count, 5.0))
    finally:
        signal.signal(signal.SIGALRM, before)
    assert said == ["'own': this thread is in apply() already"]


@pytest.mark.parametrize("weighting", ["uniform", "frequency"])
def test_a_delta_is_applied_as_a_whole_although_a_signal_handler_raises(weighting):
    """The main thread waits for a part of the model in the middle of its delta, and is interrupted there."""
    count = 1 << 20
    gate = Gate(np.full(count, 4.0))

    def interrupted(number, frame):
        raise InterruptedError

    def program(comm):
        with comm.pairwise_averaging(np.zeros(count), weighting=weighting) as model:
            other = threading.Thread(target=model.apply, args=(gate.array,))
            other.start()
            gate.wait_until_reached(other)
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGALRM)).start()
            threading.Timer(0.6, gate.open).start()
            with pytest.raises(InterruptedError):
                model.apply(np.ones(count))
            other.join()
            return model.read(), model.statistics().applied

    before = signal.signal(signal.SIGALRM, interrupted)
    try:
        with gate, loopback(1)[0] as comm:
            model, applied = program(comm)
    finally:
        signal.signal(signal.SIGALRM, before)
    np.testing.assert_array_equal(model, np.full(count, 5.0))
    assert applied == 2
