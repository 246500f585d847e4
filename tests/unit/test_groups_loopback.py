"""P-Reduce and partial reduce on ranks that are threads of this process."""

import threading
import time

import numpy as np
import pytest

import pycollectives as pc
from pycollectives import reduce_specification
from pycollectives.testing import loopback, run_ranks

SIZES = [1, 2, 3, 4, 5, 7, 8]
LIMIT = 30.0
FLOATS = ["float16", "bfloat16", "float32", "float64"]
INTEGERS = ["int8", "int16", "int32", "int64", "uint8"]

EXPECTED = {
    "SUM": lambda values: sum(values),
    "PROD": lambda values: int(np.prod(values)),
    "MIN": min,
    "MAX": max,
    "AVG": lambda values: sum(values) / len(values),
}


@pytest.fixture(autouse=True, params=[1, 2, "all"], ids=["flat", "mixed", "node"])
def ranks_per_node(request, monkeypatch):
    """Everything here holds whether ranks share memory or not: for short values too, though they would not."""
    monkeypatch.setitem(loopback.__kwdefaults__, "ranks_per_node", request.param)
    monkeypatch.setattr(reduce_specification, "SHORTEST_ON_BOARD", 0)
    return request.param


def filled(value, dtype, count=3):
    """As the library names element types."""
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    return np.full(count, value, dtype)


# --- P-Reduce in given groups


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("op", EXPECTED)
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


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
@pytest.mark.parametrize("op", EXPECTED)
def test_preduce_of_every_type(dtype, op):
    values = [4, 1, 3, 2]

    def program(comm):
        x = filled(values[comm.rank], dtype)
        comm.preduce(x, range(4), op=op, timeout=LIMIT)
        return x.astype(float).tolist()

    expected = EXPECTED[op](values)
    assert run_ranks(4, program) == [[expected if dtype in FLOATS else int(expected)] * 3] * 4


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
@pytest.mark.parametrize("count", [0, 1, 5, 40_000, 1 << 20, 2_500_000])
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
    comm.abandon()
    other.abandon()


def test_a_wrong_buffer_is_refused():
    (comm,) = loopback(1)
    with comm:
        fixed = np.ones(3)
        fixed.setflags(write=False)
        with pytest.raises(BufferError, match="writable"):
            comm.preduce(fixed, [0])
        with pytest.raises(BufferError, match="C-contiguous"):
            comm.preduce(np.ones((3, 3)).T, [0])
        with pytest.raises(TypeError, match="complex"):
            comm.preduce(np.ones(3, complex), [0])
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
        few = comm.preduce_cache
        for count in range(2, 70):
            call(count, 0, 1)
        call(69, 0, 1)
        many = comm.preduce_cache
        call(1, 0, 1)
        return few, many, comm.preduce_cache

    assert run_ranks(3, program, ranks_per_node=1)[0] == ((1, 1), (2, 69), (2, 70))


def test_who_sends_messages(monkeypatch):
    """Long values only between nodes, short ones always: those who send have plans for it."""
    monkeypatch.undo()
    shortest = reduce_specification.SHORTEST_ON_BOARD // np.float64().itemsize

    def program(comm):
        plans = []
        for count in (shortest, shortest - 1):
            x = np.full(count, float(comm.rank))
            node = [0, 1] if comm.rank < 2 else [2, 3]
            for group in (node, [0, 2] if comm.rank % 2 == 0 else [1, 3]):
                before = sum(comm.preduce_cache)
                comm.preduce(x, group, timeout=LIMIT)
                plans.append(sum(comm.preduce_cache) - before)
            with comm.partial_reduce(like=x, groups=pc.StaticGroups(4)) as pr:
                for step in (0, 1, 2, 3):
                    pr.sync(x, step, timeout=LIMIT)
                plans.append(pr.cache_hits + pr.cache_misses > 0)
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


# --- The generator's service

GENERATORS = [
    pc.RandomGroups(2),
    pc.RandomGroups(2, group_buffer=False),
    pc.RandomGroups(3),
    pc.RandomGroups(8),  # more members than a notice names
    pc.SmartGroups(2),
    pc.SmartGroups(3, inter_intra=False),
    pc.PunctualGroups(2),
    pc.StaticGroups(2),
]


def skip_too_few(generator, size):
    if not isinstance(generator, pc.StaticGroups) and generator.size > size > 1:
        pytest.skip("more members than ranks")


@pytest.mark.parametrize("generator", GENERATORS, ids=repr)
@pytest.mark.parametrize("size", SIZES)
def test_every_group_gets_its_average(size, generator):
    """All members of a group have the same result, of what they had before; one group at a time, in one order."""
    skip_too_few(generator, size)
    calls = 12

    def program(comm):
        weights = np.full(3, 2.0**20 * comm.rank)
        log = []
        with comm.partial_reduce(like=weights, groups=generator, gg_rank=size // 2) as pr:
            for _ in range(calls):
                before = weights[1]
                info = pr.sync(weights, timeout=LIMIT)
                assert comm.rank in info.group
                assert info.waited >= 0
                assert info.conflicts >= 0
                log.append((info.sequence, info.group, before, weights.tolist()))
        return log

    outcome = run_ranks(size, program, delay=1e-4)
    by_group = {}
    for rank, log in enumerate(outcome):
        sequences = [sequence for sequence, *_ in log]
        assert sequences == sorted(set(sequences))
        for sequence, group, before, after in log:
            by_group.setdefault((sequence, group), {})[rank] = (before, after)
    assert any(len(group) > 1 for _, group in by_group) or size == 1
    passes_others = getattr(generator, "group_buffer", True) is False  # so `before` is not what a group averaged
    for (_, group), members in by_group.items():
        results = [after for _, after in members.values()]
        if not passes_others:
            assert results == results[:1] * len(results)
        if len(members) == len(group) and not passes_others:
            np.testing.assert_allclose(results[0], sum(before for before, _ in members.values()) / len(group))


@pytest.mark.parametrize("generator", GENERATORS, ids=repr)
@pytest.mark.parametrize("size", [3, 5, 8])
def test_different_numbers_of_calls(size, generator):
    skip_too_few(generator, size)

    def program(comm):
        weights = np.full(4, float(comm.rank))
        with comm.partial_reduce(like=weights, groups=generator) as pr:
            for _ in range(1 + 5 * comm.rank):
                pr.sync(weights, timeout=LIMIT)
        return pr.closed

    assert run_ranks(size, program) == [True] * size


@pytest.mark.parametrize("dtype", ["float16", "float32", "int32"])
def test_sync_of_other_types_and_operations(dtype):
    def program(comm):
        weights = filled(comm.rank + 1, dtype).reshape(1, 3)
        with comm.partial_reduce(like=weights, groups=pc.RandomGroups(2), op="MAX") as pr:
            pr.sync(weights, timeout=LIMIT)
        return weights.astype(float).tolist()

    assert run_ranks(2, program) == [[[2.0] * 3]] * 2


def test_a_rank_that_leaves_takes_part_with_its_final_weights():
    """Rank 0 asks, and the group is of both; rank 1 never calls. The array that it left may be overwritten."""

    def program(comm):
        weights = np.full(2, 8.0 * comm.rank)
        pr = comm.partial_reduce(like=weights, groups=pc.RandomGroups(2))
        if comm.rank == 0:
            infos = [pr.sync(weights, timeout=LIMIT) for _ in range(2)]
            assert [info.group for info in infos] == [(0, 1), (0,)]
            pr.close()
        else:
            time.sleep(0.3)
            pr.close()
            weights[:] = np.nan
            with pytest.raises(pc.ClosedError):
                pr.sync(weights)
        return weights[0]

    assert run_ranks(2, program)[0] == 4.0


def test_final_weights_may_be_given():
    def program(comm):
        weights = np.full(2, 8.0 * comm.rank)
        pr = comm.partial_reduce(like=weights, groups=pc.RandomGroups(2))
        if comm.rank == 0:
            pr.sync(weights, timeout=LIMIT)
        else:
            time.sleep(0.3)
        pr.close(np.full(2, 2.0))
        return weights[0]

    assert run_ranks(2, program)[0] == 1.0


def test_a_rank_that_fails_is_left_out():
    """It is in the group, and has nothing to give."""

    def program(comm):
        weights = np.full(2, 8.0 * (comm.rank + 1))
        with comm.partial_reduce(like=weights, groups=pc.RandomGroups(2)) as pr:
            if comm.rank == 1:
                time.sleep(0.3)
                raise KeyError
            info = pr.sync(weights, timeout=LIMIT)
        return info.group, weights[0]

    outcome = run_ranks(2, program, return_exceptions=True)
    assert outcome[0] == ((0, 1), 8.0)


@pytest.mark.parametrize("count", [2, 300_000])
def test_staleness_weights(count):
    """Rank 0 comes to a group that rank 1 made in step 3, with weights of step 0."""

    def program(comm):
        weights = np.full(count, 10.0 * comm.rank, np.float32)
        with comm.partial_reduce(like=weights, groups=pc.RandomGroups(2), weighting="staleness") as pr:
            if comm.rank == 0:
                time.sleep(0.3)
            pr.sync(weights, step=3 * comm.rank, timeout=LIMIT)
        return weights

    for weights in run_ranks(2, program):
        np.testing.assert_allclose(weights, 8.0)


def test_steps_of_static_groups():
    """By default one after the other; those that are given are taken."""

    def program(comm):
        weights = np.full(1, 2.0**10 * comm.rank)
        with comm.partial_reduce(like=weights, groups=pc.StaticGroups(2)) as pr:
            infos = [pr.sync(weights, timeout=LIMIT) for _ in range(2)]
            infos.append(pr.sync(weights, step=8, timeout=LIMIT))
            infos.append(pr.sync(weights, timeout=LIMIT))
            with pytest.raises(ValueError, match="step >= 10, after the last"):
                pr.sync(weights, step=9)
        return [(info.sequence, info.group) for info in infos]

    rule = pc.StaticGroups(2).group_of
    for rank, told in enumerate(run_ranks(4, program)):
        assert told == [(step, rule(rank, step, 4)) for step in (0, 1, 8, 9)]


# --- Errors


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"groups": "smart"}, TypeError, "groups: expected"),
        ({"groups": pc.RandomGroups(4)}, ValueError, "number of workers"),
        ({"gg_rank": 2}, ValueError, "gg_rank"),
        ({"gg_rank": "0"}, TypeError, "gg_rank"),
        ({"weighting": "equal"}, ValueError, "weighting"),
        ({"weighting": "staleness", "op": "SUM"}, ValueError, "AVG of floats"),
        ({"weighting": "staleness", "like": np.ones(2, "i4")}, ValueError, "AVG of floats"),
        ({"weighting": "staleness", "groups": pc.StaticGroups(2)}, ValueError, "same step"),
        ({"name": ""}, ValueError, "name"),
    ],
)
def test_wrong_arguments(options, error, message):
    def program(comm):
        with pytest.raises(error, match=message):
            comm.partial_reduce(**({"like": np.ones(2), "groups": pc.RandomGroups(2)} | options))

    run_ranks(2, program)


def test_ranks_that_differ_all_hear_of_it():
    def program(comm):
        with pytest.raises(pc.MismatchError, match=r"groups: .*seed=0.* on rank 0, .*seed=1.* on rank 1"):
            comm.partial_reduce(like=np.ones(2), groups=pc.RandomGroups(2, seed=comm.rank))

    run_ranks(2, program)


def test_wrong_weights_are_refused_and_nothing_is_sent():
    def program(comm):
        fixed = np.ones(3)
        fixed.setflags(write=False)
        with comm.partial_reduce(like=np.ones(3), groups=pc.RandomGroups(2)) as pr:
            for weights, error in [(np.ones(2), ValueError), (np.ones(3, "f4"), TypeError), (fixed, BufferError)]:
                with pytest.raises(error, match="partial_reduce"):
                    pr.sync(weights)
            with pytest.raises(ValueError, match="step"):
                pr.sync(np.ones(3), step=-1)
            with pytest.raises(TypeError):
                pr.sync(np.ones(3), step=1.5)
            weights = np.full(3, float(comm.rank))
            pr.sync(weights, timeout=LIMIT)
        return weights[0]

    assert run_ranks(2, program) == [0.5, 0.5]


def test_a_stalled_group_names_who_has_not_come():
    given_up = threading.Event()

    def program(comm):
        weights = np.full(2, 8.0 * comm.rank)
        with comm.partial_reduce(like=weights, groups=pc.RandomGroups(2), name="weights") as pr:
            if comm.rank == 1:
                assert given_up.wait(LIMIT)
                return
            text = r"'weights': group 0, of ranks 0, 1, is not complete.* workers 0, 1 runs: not asked for by 1"
            with pytest.raises(pc.StallError, match=text):
                pr.sync(weights, timeout=0.2)
            given_up.set()
            with pytest.raises(pc.ClosedError, match="unusable"):
                pr.sync(weights)

    run_ranks(2, program)


def test_a_stalled_static_group_names_who_has_not_come():
    given_up = threading.Event()

    def program(comm):
        weights = np.full(2, 8.0 * comm.rank)
        with comm.partial_reduce(like=weights, groups=pc.StaticGroups(3), name="weights") as pr:
            pr.sync(weights, step=0, timeout=LIMIT)
            if comm.rank == 1:
                assert given_up.wait(LIMIT)
            elif comm.rank == 0:
                with pytest.raises(pc.StallError, match="group of ranks 0-2 in step 1: have not come: rank 1;"):
                    pr.sync(weights, timeout=0.2)
                given_up.set()
            else:
                pr.sync(weights, timeout=LIMIT)  # with rank 0, whose engine goes on, and without rank 1, which leaves
                return weights.tolist()
            return None

    assert run_ranks(3, program)[2] == [8.0, 8.0]


def test_a_generator_that_does_not_answer_is_named():
    """Where nobody moves rank 0's messages."""
    given_up = threading.Event()

    def program(comm):
        pr = comm.partial_reduce(like=np.ones(2), groups=pc.RandomGroups(2))
        if comm.rank == 0:
            assert given_up.wait(LIMIT)
        else:
            with pytest.raises(pc.StallError, match="generator of rank 0 gives no answer"):
                pr.sync(np.ones(2), timeout=0.1)
            given_up.set()
        pr.close()

    run_ranks(2, program, progress="caller")


def test_one_thread_at_a_time():
    """A second thread is refused while the first one waits."""
    refused = threading.Event()

    def program(comm):
        pr = comm.partial_reduce(like=np.ones(2), groups=pc.RandomGroups(2))
        if comm.rank == 0:
            first = threading.Thread(target=lambda: pr.sync(np.ones(2), timeout=LIMIT))
            first.start()
            time.sleep(0.1)
            with pytest.raises(RuntimeError, match="another thread"):
                pr.sync(np.ones(2))
            refused.set()
            first.join()
        else:
            assert refused.wait(LIMIT)
            pr.sync(np.ones(2), timeout=LIMIT)
        pr.close()

    run_ranks(2, program)


# --- Fusing arrays


def test_flatten_copies_what_is_apart():
    first, second = np.arange(6.0).reshape(2, 3), np.array(7.0)
    flat, views = pc.flatten([first, second, np.empty((0, 2))])
    assert flat.tolist() == [0, 1, 2, 3, 4, 5, 7]
    assert [view.shape for view in views] == [(2, 3), (), (0, 2)]
    assert all(np.shares_memory(view, flat) for view in views[:2])
    assert not np.shares_memory(flat, first)


@pytest.mark.parametrize("dtype", FLOATS)
def test_flatten_copies_nothing_that_lies_together(dtype):
    whole = filled(1, dtype, 20)
    parts = [whole[3:9].reshape(2, 3), whole[9:10], whole[10:15]]
    flat, _ = pc.flatten(parts)
    assert np.shares_memory(flat, whole)
    assert flat.shape == (12,)
    flat[:] = 5
    assert whole.astype(float).tolist() == [1.0] * 3 + [5.0] * 12 + [1.0] * 5


def test_flatten_copies_what_lies_in_another_order_or_with_gaps():
    whole = np.arange(8.0)
    for parts in ([whole[4:], whole[:4]], [whole[:3], whole[4:]], [whole[::2], whole[1::2]]):
        flat, _ = pc.flatten(parts)
        assert flat.tolist() == np.concatenate(parts).tolist()
        assert not np.shares_memory(flat, whole)


def test_flatten_refuses():
    with pytest.raises(ValueError, match="at least one"):
        pc.flatten([])
    with pytest.raises(ValueError, match="float32, float64"):
        pc.flatten([np.ones(1), np.ones(1, "f4")])
    with pytest.raises(TypeError):
        pc.flatten([np.ones(1, complex)])
    with pytest.raises(TypeError, match=r"pass its values\(\)"):
        pc.flatten({"weights": np.ones(2)})
    with pytest.raises(TypeError, match="several arrays, got one"):
        pc.flatten(np.ones(4))
