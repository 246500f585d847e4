"""Partial reduce, in the groups of a generator, on ranks that are threads of this process."""

import threading
import time

import numpy as np
import pytest

import pycollectives as pc
from pycollectives.partial_reduce import arguments
from pycollectives.testing import loopback, run_ranks

SIZES = [1, 2, 3, 4, 5, 7, 8, 9]
LIMIT = 30.0
GENERATORS = [
    pc.groups.RandomGroups(2),
    pc.groups.RandomGroups(2, group_buffer=False),
    pc.groups.RandomGroups(3),
    pc.groups.RandomGroups(9),  # more members than a message names
    pc.groups.SmartGroups(2),
    pc.groups.SmartGroups(3, inter_intra=False),
    pc.groups.PunctualGroups(2),
    pc.groups.StaticGroups(2),
]


@pytest.fixture(autouse=True, params=[1, 2, "all"], ids=["flat", "mixed", "node"])
def ranks_per_node(request, monkeypatch):
    """Everything here holds whether ranks share memory or not: for short values too, though they would not."""
    monkeypatch.setitem(loopback.__kwdefaults__, "ranks_per_node", request.param)
    monkeypatch.setattr(arguments, "SHORTEST_ON_BOARD", 0)
    return request.param


def skip_too_few(generator, size):
    if not isinstance(generator, pc.groups.StaticGroups) and generator.size > size > 1:
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
        with comm.partial_reduce(weights, groups=generator, coordinator_rank=size // 2) as pr:
            for _ in range(calls):
                before = weights[1]
                info = pr.average(weights, timeout=LIMIT)
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
        with comm.partial_reduce(weights, groups=generator) as pr:
            for _ in range(1 + 5 * comm.rank):
                pr.average(weights, timeout=LIMIT)
        return pr.closed

    assert run_ranks(size, program) == [True] * size


@pytest.mark.parametrize("dtype", ["float16", "float32", "int32"])
def test_sync_of_other_types_and_operations(dtype):
    def program(comm):
        weights = np.full((1, 3), comm.rank + 1, dtype)
        with comm.partial_reduce(weights, groups=pc.groups.RandomGroups(2), op="MAX") as pr:
            pr.average(weights, timeout=LIMIT)
        return weights.astype(float).tolist()

    assert run_ranks(2, program) == [[[2.0] * 3]] * 2


def test_a_rank_that_leaves_takes_part_with_its_final_weights():
    """Rank 0 asks, and the group is of both; rank 1 never calls. The array that it left may be overwritten."""

    def program(comm):
        weights = np.full(2, 8.0 * comm.rank)
        pr = comm.partial_reduce(weights, groups=pc.groups.RandomGroups(2))
        if comm.rank == 0:
            infos = [pr.average(weights, timeout=LIMIT) for _ in range(2)]
            assert [info.group for info in infos] == [(0, 1), (0,)]
            pr.leave()
        else:
            time.sleep(0.3)
            pr.leave(weights)
            weights[:] = np.nan
            with pytest.raises(pc.ClosedError):
                pr.average(weights)
        return weights[0]

    assert run_ranks(2, program)[0] == 4.0


def test_final_weights_may_be_given():
    def program(comm):
        weights = np.full(2, 8.0 * comm.rank)
        pr = comm.partial_reduce(weights, groups=pc.groups.RandomGroups(2))
        if comm.rank == 0:
            pr.average(weights, timeout=LIMIT)
        else:
            time.sleep(0.3)
        pr.leave(np.full(2, 2.0))
        return weights[0]

    assert run_ranks(2, program)[0] == 1.0


def test_a_rank_that_fails_is_left_out():
    """It is in the group, and has nothing to give."""

    def program(comm):
        weights = np.full(2, 8.0 * (comm.rank + 1))
        with comm.partial_reduce(weights, groups=pc.groups.RandomGroups(2)) as pr:
            if comm.rank == 1:
                time.sleep(0.3)
                raise KeyError
            info = pr.average(weights, timeout=LIMIT)
        return info.group, weights[0]

    outcome = run_ranks(2, program, return_exceptions=True)
    assert outcome[0] == ((0, 1), 8.0)


@pytest.mark.parametrize("count", [2, 300_000])
def test_staleness_weights(count):
    """Rank 0 comes to a group that rank 1 made in step 3, with weights of step 0."""

    def program(comm):
        weights = np.full(count, 10.0 * comm.rank, np.float32)
        with comm.partial_reduce(weights, groups=pc.groups.RandomGroups(2), weighting="staleness") as pr:
            if comm.rank == 0:
                time.sleep(0.3)
            pr.average(weights, step=3 * comm.rank, timeout=LIMIT)
        return weights

    for weights in run_ranks(2, program):
        np.testing.assert_allclose(weights, 8.0)


def test_steps_of_static_groups():
    """By default one after the other; those that are given are taken."""

    def program(comm):
        weights = np.full(1, 2.0**10 * comm.rank)
        with comm.partial_reduce(weights, groups=pc.groups.StaticGroups(2)) as pr:
            infos = [pr.average(weights, timeout=LIMIT) for _ in range(2)]
            infos.append(pr.average(weights, step=8, timeout=LIMIT))
            infos.append(pr.average(weights, timeout=LIMIT))
            with pytest.raises(ValueError, match="step >= 10, above the last"):
                pr.average(weights, step=9)
        return [(info.sequence, info.group) for info in infos]

    rule = pc.groups.StaticGroups(2).group_of
    for rank, told in enumerate(run_ranks(4, program)):
        assert told == [(step, rule(rank, step, 4)) for step in (0, 1, 8, 9)]


# --- Errors


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"groups": "clever"}, ValueError, "groups 'clever': expected smart, punctual or random"),
        ({"groups": 2}, TypeError, "groups: expected"),
        ({"groups": pc.groups.RandomGroups(4)}, ValueError, "number of workers"),
        ({"coordinator_rank": 2}, ValueError, "coordinator_rank"),
        ({"coordinator_rank": "0"}, TypeError, "coordinator_rank"),
        ({"weighting": "equal"}, ValueError, "weighting"),
        ({"weighting": "staleness", "op": "SUM"}, ValueError, "AVG of floats"),
        ({"weighting": "staleness", "like": np.ones(2, "i4")}, ValueError, "AVG of floats"),
        ({"weighting": "staleness", "groups": pc.groups.StaticGroups(2)}, ValueError, "same step"),
        ({"name": ""}, ValueError, "name"),
    ],
)
def test_wrong_arguments(options, error, message):
    def program(comm):
        with pytest.raises(error, match=message):
            comm.partial_reduce(**({"like": np.ones(2), "groups": pc.groups.RandomGroups(2)} | options))

    run_ranks(2, program)


def test_ranks_that_differ_all_hear_of_it():
    def program(comm):
        with pytest.raises(pc.MismatchError, match=r"groups: .*seed=0.* on rank 0, .*seed=1.* on rank 1"):
            comm.partial_reduce(np.ones(2), groups=pc.groups.RandomGroups(2, seed=comm.rank))

    run_ranks(2, program)


def test_wrong_weights_are_refused_and_nothing_is_sent():
    def program(comm):
        fixed = np.ones(3)
        fixed.setflags(write=False)
        with comm.partial_reduce(np.ones(3), groups=pc.groups.RandomGroups(2)) as pr:
            for weights, error in [(np.ones(2), ValueError), (np.ones(3, "f4"), TypeError), (fixed, BufferError)]:
                with pytest.raises(error, match="partial_reduce"):
                    pr.average(weights)
            with pytest.raises(ValueError, match="step"):
                pr.average(np.ones(3), step=-1)
            with pytest.raises(TypeError):
                pr.average(np.ones(3), step=1.5)
            weights = np.full(3, float(comm.rank))
            pr.average(weights, timeout=LIMIT)
        return weights[0]

    assert run_ranks(2, program) == [0.5, 0.5]


def test_a_stalled_group_names_who_has_not_come():
    given_up = threading.Event()

    def program(comm):
        weights = np.full(2, 8.0 * comm.rank)
        with comm.partial_reduce(weights, groups=pc.groups.RandomGroups(2), name="weights") as pr:
            if comm.rank == 1:
                assert given_up.wait(LIMIT)
                return
            text = r"'weights': group 0, of ranks 0, 1, is not complete.* workers 0, 1 runs: not asked for by 1"
            with pytest.raises(pc.StallError, match=text):
                pr.average(weights, timeout=0.2)
            given_up.set()
            with pytest.raises(pc.ClosedError, match="unusable"):
                pr.average(weights)

    run_ranks(2, program)


def test_a_stalled_static_group_names_who_has_not_come():
    given_up = threading.Event()

    def program(comm):
        weights = np.full(2, 8.0 * comm.rank)
        with comm.partial_reduce(weights, groups=pc.groups.StaticGroups(3), name="weights") as pr:
            pr.average(weights, step=0, timeout=LIMIT)
            if comm.rank == 1:
                assert given_up.wait(LIMIT)
            elif comm.rank == 0:
                with pytest.raises(pc.StallError, match=r"group of ranks 0-2 in step 1: have not come: rank 1\."):
                    pr.average(weights, timeout=0.2)
                given_up.set()
            else:
                pr.average(
                    weights, timeout=LIMIT
                )  # with rank 0, whose engine goes on, and without rank 1, which leaves
                return weights.tolist()
            return None

    assert run_ranks(3, program)[2] == [8.0, 8.0]


def test_a_generator_that_does_not_answer_is_named():
    """Where nobody moves rank 0's messages."""
    given_up = threading.Event()

    def program(comm):
        pr = comm.partial_reduce(np.ones(2), groups=pc.groups.RandomGroups(2))
        if comm.rank == 0:
            assert given_up.wait(LIMIT)
        else:
            with pytest.raises(pc.StallError, match="generator of rank 0 gives no answer"):
                pr.average(np.ones(2), timeout=0.1)
            given_up.set()
        pr.leave()

    run_ranks(2, program, progress="caller")


def test_one_thread_at_a_time():
    """A second thread is refused while the first one waits."""
    refused = threading.Event()

    def program(comm):
        pr = comm.partial_reduce(np.ones(2), groups=pc.groups.RandomGroups(2))
        if comm.rank == 0:
            first = threading.Thread(target=lambda: pr.average(np.ones(2), timeout=LIMIT))
            first.start()
            time.sleep(0.1)
            with pytest.raises(RuntimeError, match="another thread"):
                pr.average(np.ones(2))
            refused.set()
            first.join()
        else:
            assert refused.wait(LIMIT)
            pr.average(np.ones(2), timeout=LIMIT)
        pr.leave()

    run_ranks(2, program)
