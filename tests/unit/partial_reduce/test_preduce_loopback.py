"""P-Reduce in given groups, on ranks that are threads of this process."""

import contextlib
import gc
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from reductions import SOME_PAIRS

import pycollectives as pc
from pycollectives import _testing
from pycollectives.partial_reduce import arguments
from pycollectives.partial_reduce.means import reduce_on_all_ranks
from pycollectives.testing import loopback, run_ranks

SIZES = [1, 2, 3, 4, 5, 7, 8]
LIMIT = 30.0

EXPECTED = {
    "SUM": lambda values: sum(values),
    "PROD": lambda values: int(np.prod(values)),
    "MIN": min,
    "MAX": max,
    "AVG": lambda values: sum(values) / len(values),
}
FOLDED = {
    "LAND": np.logical_and,
    "LOR": np.logical_or,
    "LXOR": np.logical_xor,
    "BAND": np.bitwise_and,
    "BOR": np.bitwise_or,
    "BXOR": np.bitwise_xor,
}
EXPECTED |= {op: ufunc.reduce for op, ufunc in FOLDED.items()}


@pytest.fixture(autouse=True, params=[1, 2, "all"], ids=["flat", "mixed", "node"])
def ranks_per_node(request, monkeypatch):
    """Everything here holds whether ranks share memory or not: for short values too, though they would not."""
    monkeypatch.setitem(loopback.__kwdefaults__, "ranks_per_node", request.param)
    monkeypatch.setattr(arguments, "SHORTEST_ON_BOARD", 0)
    return request.param


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("op", ["SUM", "PROD", "MIN", "MAX", "AVG"])
def test_preduce(size, op):
    """Among all subsets that begin at rank 0, given in any order; the others keep what they have."""

    def program(comm):
        results = []
        for members in range(1, size + 1):
            x = np.full(3, float(comm.rank + 1))
            if comm.rank < members:
                comm.preduce(x, np.roll(range(members), comm.rank), op=op, timeout=LIMIT)
            results.append(x.tolist())
        return results

    expected = [
        [[EXPECTED[op](range(1, members + 1)) if rank < members else rank + 1.0] * 3 for members in range(1, size + 1)]
        for rank in range(size)
    ]
    assert run_ranks(size, program) == expected


@pytest.mark.parametrize(("op", "dtype"), SOME_PAIRS)
def test_preduce_of_every_type(dtype, op):
    pytest.importorskip("ml_dtypes")  # by which NumPy knows bfloat16
    values = [4, 1, 3, 2]

    def program(comm):
        x = np.full(3, values[comm.rank], dtype)
        comm.preduce(x, range(4), op=op, timeout=LIMIT)
        return x.astype(complex).tolist()

    kept = np.array(values, dtype)
    expected = EXPECTED[op](values if kept.dtype.kind != "b" else kept)
    if kept.dtype.kind in "iub":
        expected = int(expected)
    assert run_ranks(4, program) == [[expected] * 3] * 4


def test_overlapping_groups_in_a_random_order():
    """The same list on all ranks; each performs those that it is in. Averages of powers of two are exact."""
    size, rng = 8, np.random.default_rng(3)
    groups = [rng.choice(size, size=rng.choice([2, 4]), replace=False) for _ in range(12)]

    def program(comm):
        x = np.array([2.0**40 * comm.rank, comm.rank == 0])
        for group in groups:
            if comm.rank in group:
                comm.preduce(x, group, timeout=LIMIT)
        return x.tolist()

    expected = np.array([[2.0**40 * rank, rank == 0] for rank in range(size)])
    for group in groups:
        expected[group] = expected[group].mean(axis=0)
    assert run_ranks(size, program, delay=1e-4) == expected.tolist()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(
    "count",
    [0, 1, 5, 40_000, 1 << 18, *(pytest.param(count, marks=pytest.mark.large) for count in (1 << 20, 2_500_000))],
)
def test_preduce_of_any_length(count, dtype):
    """In shared memory 512 KiB at a time; float16 is widened there."""

    def program(comm):
        pattern = (np.arange(count) % 1000).astype(dtype)
        x = pattern + dtype_of(comm.rank)
        for _ in range(2):
            comm.preduce(x, range(3), timeout=LIMIT)
        return bool((x == pattern + dtype_of(1)).all())

    dtype_of = np.dtype(dtype).type
    assert all(run_ranks(3, program))


def test_preduce_is_in_place_on_what_a_specification_names():
    def program(comm):
        x = np.full(4, comm.rank, np.int32)
        comm.preduce([x, 2, "i4"], (0, 1), op="SUM", timeout=LIMIT)
        return x.tolist()

    assert run_ranks(2, program) == [[1, 1, 0, 0], [1, 1, 1, 1]]


@pytest.mark.parametrize(
    ("group", "message"),
    [([0, 2], "ranks 0 to 1"), ([0, -1], "ranks 0 to 1"), ([0, 1, 0], "different"), ([1], "this rank"), ([], "this")],
)
def test_a_wrong_group_is_refused(group, message):
    (comm, other) = loopback(2)
    with pytest.raises(ValueError, match=message):
        comm.preduce(np.ones(1), group)
    comm.abort()
    other.abort()


def test_a_wrong_buffer_is_refused():
    (comm,) = loopback(1)
    with comm:
        fixed = np.ones(3)
        fixed.setflags(write=False)
        with pytest.raises(BufferError, match="writable"):
            comm.preduce(fixed, [0])
        with pytest.raises(BufferError, match="C-contiguous"):
            comm.preduce(np.ones((3, 3)).T, [0])
        with pytest.raises(TypeError, match="object"):
            comm.preduce(np.ones(3, object), [0])
        with pytest.raises(TypeError, match="MAX is not defined on complex128"):
            comm.preduce(np.ones(3, complex), [0], op="MAX")
        with pytest.raises(TypeError):
            comm.preduce(np.ones(3), ["a"])
    with pytest.raises(pc.ClosedError):
        comm.preduce(np.ones(3), [0])


def test_plans_are_kept_and_their_number_is_bounded():
    """One for all groups of two in which this rank has the same place; 64 at most."""

    def program(comm):
        def call(count, *group):
            if comm.rank in group:
                comm.preduce(np.ones(count), group, timeout=LIMIT)

        call(1, 0, 1)
        call(1, 0, 2)
        few = comm.statistics().preduce_cache
        for count in range(2, 70):
            call(count, 0, 1)
        call(69, 0, 1)
        many = comm.statistics().preduce_cache
        call(1, 0, 1)
        return few, many, comm.statistics().preduce_cache

    assert run_ranks(3, program, ranks_per_node=1)[0] == ((1, 1), (2, 69), (2, 70))


def test_who_sends_messages(monkeypatch):
    """Long values only between nodes, short ones always: those who send have plans for it."""
    monkeypatch.undo()
    shortest = arguments.SHORTEST_ON_BOARD // np.float64().itemsize

    def program(comm):
        plans = []
        for count in (shortest, shortest - 1):
            x = np.full(count, float(comm.rank))
            node = [0, 1] if comm.rank < 2 else [2, 3]
            for group in (node, [0, 2] if comm.rank % 2 == 0 else [1, 3]):
                before = sum(comm.statistics().preduce_cache)
                comm.preduce(x, group, timeout=LIMIT)
                plans.append(sum(comm.statistics().preduce_cache) - before)
            with comm.partial_reduce(x, groups=pc.groups.StaticGroups(4)) as pr:
                for step in (0, 1, 2, 3):
                    pr.average(x, step, timeout=LIMIT)
                plans.append(pr.statistics().cache_misses > 0)
        return plans

    assert run_ranks(4, program, ranks_per_node=2) == [[0, 1, True, 1, 1, True]] * 4
    assert run_ranks(4, program, ranks_per_node=4) == [[0, 0, False, 1, 1, True]] * 4


def test_a_stalled_preduce_names_the_group_and_the_missing_rank():
    given_up = threading.Event()

    def program(comm):
        x = np.full(1, float(comm.rank))
        if comm.rank == 2:
            comm.preduce(np.ones(1), [2, 3], timeout=LIMIT)
            assert given_up.wait(LIMIT)
        if comm.rank == 0:
            time.sleep(0.1)
            with pytest.raises(pc.StallError, match=r"P-Reduce of ranks 0-2: .*have not arrived: rank 2 \(alive"):
                comm.preduce(x, range(3), timeout=0.2)
            given_up.set()
            with pytest.raises(pc.ClosedError, match="ranks 0-2, was given up"):
                comm.preduce(np.ones(1), [0, 1])
        elif comm.rank < 3:
            comm.preduce(x, range(3), timeout=LIMIT)
            return x[0]
        else:
            comm.preduce(np.ones(1), [2, 3], timeout=LIMIT)
        return None

    assert run_ranks(4, program) == [None, 1.0, 1.0, None]


def test_between_calls_the_progress_thread_only_listens():
    """It costs no core, and still answers a rank that asks for whom it waits."""

    def program(comm):
        x = np.ones(3)
        comm.preduce(x, range(2), op="SUM", timeout=LIMIT)
        until = time.monotonic() + LIMIT
        while _testing.is_driven(comm._engine):
            assert time.monotonic() < until
            time.sleep(0.01)
        if comm.rank == 1:
            time.sleep(1.5)
            return ""
        with pytest.raises(pc.StallError) as stall:
            comm.preduce(x, range(2), op="SUM", timeout=0.2)
        return str(stall.value)

    text, _ = run_ranks(2, program, timeout=60.0)
    assert "have not arrived: rank 1 (alive" in text, text


def test_memory_is_freed_with_the_communicator():
    """Without Python's garbage collector: nothing refers to itself in a circle."""

    def shared_files():
        links = []
        for descriptor in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                links.append(str(descriptor.readlink()))
        return [link for link in links if "pycollectives" in link]

    gc.collect()
    before = shared_files()
    gc.disable()
    try:
        run_ranks(2, lambda comm: comm.preduce(np.ones(1000), [0, 1]))
        assert len(shared_files()) <= len(before)
    finally:
        gc.enable()


class OutOfMemory:
    """Exports its memory by DLPack, and has none."""

    def __dlpack_device__(self):
        return 1, 0

    def __dlpack__(self, **options):
        raise MemoryError("no memory is left")


class NotText:
    """Shows itself by a text that UTF-8 has no bytes for."""

    def __repr__(self):
        return "\udc80"


REFUSED = {
    "exporter": (lambda x: OutOfMemory(), {}, MemoryError),
    "text": (lambda x: x, {"op": NotText()}, TypeError),
    "dtype": (lambda x: np.ones(2, np.longdouble), {}, TypeError),
    "op": (lambda x: x, {"op": "NONE"}, ValueError),
    "readonly": (lambda x: np.frombuffer(bytes(16)), {}, BufferError),
    "timeout": (lambda x: x, {"timeout": -1.0}, ValueError),
    "stream": (lambda x: x, {"stream": 1}, ValueError),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("late", [0, 1, 2])
def test_a_refusal_on_one_member_is_an_error_on_all_and_all_go_on(case, late):
    """Whoever comes first: several P-Reduces follow, of which none may take what was sent for the refused one."""
    change, options, error = REFUSED[case]

    def program(comm):
        x = np.full(2, float(comm.rank))
        if comm.rank == late:
            time.sleep(0.05)
        if comm.rank == 1:
            with pytest.raises(error):
                comm.preduce(change(x), [0, 1, 2], **({"timeout": LIMIT} | options))
        else:
            with pytest.raises(pc.MismatchError, match=rf"refused on rank 1: {error.__name__}: "):
                comm.preduce(x, [0, 1, 2], timeout=LIMIT)
        if comm.rank != 1:
            comm.preduce(x, [0, 2], timeout=LIMIT)
        comm.preduce(x, [0, 1, 2], timeout=LIMIT)
        return x.tolist()

    assert run_ranks(3, program) == [[1.0, 1.0]] * 3


def test_refusals_on_all_members_are_forgotten():
    def program(comm):
        for _ in range(3):
            with pytest.raises(TypeError):
                comm.preduce(np.ones(1, np.longdouble), range(3), timeout=LIMIT)
        x = np.full(1, float(comm.rank))
        comm.preduce(x, range(3), timeout=LIMIT)
        return float(x[0])

    assert run_ranks(3, program) == [1.0] * 3


def test_a_long_reason_arrives_whole():
    def program(comm):
        x = np.ones(1)
        if comm.rank == 0:
            with pytest.raises(ValueError, match=r"Z{300}"):
                comm.preduce(x, [0, 1], op="Z" * 300, timeout=LIMIT)
        else:
            with pytest.raises(pc.MismatchError, match=r"Z{300}"):
                comm.preduce(x, [0, 1], timeout=LIMIT)

    run_ranks(2, program)


def test_two_calls_that_are_alike_but_for_their_names_do_not_mix():
    def program(comm):
        caller = "preduce" if comm.rank == 0 else "broadcast"
        with pytest.raises(pc.MismatchError, match=r"ranks make different calls: (preduce|broadcast) here"):
            reduce_on_all_ranks(comm, np.ones(1), pc.AVG, LIMIT, caller=caller)

    run_ranks(2, program)
