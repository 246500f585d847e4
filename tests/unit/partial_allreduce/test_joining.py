"""Ranks that reduce their own arrays into the sum of a round: joint_sum.h. Ranks are threads of one node."""

import threading
import time

import numpy as np
import pytest
from gate import Gate

import pycollectives as pc
from pycollectives.testing import run_ranks

LIMIT = 30.0
COUNT = 1 << 15  # int64: 256 KiB, several pieces
PAGE = 4096 // 8  # elements
SOON = 5.0  # a second is far more than it takes


def on_board(size, program):
    return run_ranks(size, program, ranks_per_node=size, timeout=100.0)


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("late", ["accumulate", "replace", "drop"])
def test_a_rank_that_is_held_in_its_array_has_joined_and_holds_up_no_call(size, late):
    """Others return from `contribute`, though it is at a piece that they lack, and may overwrite their arrays."""

    def program(comm):
        ar = comm.partial_allreduce(count=COUNT, dtype="int64", policy=pc.Full(), late=late)
        numbers = np.arange(COUNT)
        if comm.rank == 1:
            together.wait(LIMIT)
            result, info = ar.allreduce(gate.array, timeout=LIMIT)
        else:
            together.wait(LIMIT)
            time.sleep(0.1)  # rank 1 is at the page
            x = numbers * 10**comm.rank
            began = time.monotonic()
            call = ar.contribute(x)
            assert time.monotonic() - began < SOON
            x[:] = -1
            with pytest.raises(pc.StallError, match="every rank has arrived: the round is slow"):
                call.wait(timeout=0.2)
            have_waited.wait(LIMIT)
            if comm.rank == 0:
                gate.open()
            info, result = call.wait(timeout=LIMIT), ar.result
        np.testing.assert_array_equal(result, numbers * sum(10**rank for rank in range(size)))
        assert (info.round, info.contributors, info.active) == (0, tuple(range(size)), size)
        again, info = ar.allreduce(np.full(COUNT, 7), timeout=LIMIT)
        assert (info.round, info.included, again.min(), again.max()) == (1, True, 7 * size, 7 * size)
        return True

    together, have_waited = threading.Barrier(size), threading.Barrier(size - 1)
    gate = Gate(np.arange(COUNT) * 10)
    with gate:
        assert all(on_board(size, program))


def test_a_round_does_not_complete_while_a_rank_adds():
    """Rank 1 is held at its first piece, which rank 0 has added, and so has nothing to leave over."""

    def program(comm):
        ar = comm.partial_allreduce(count=COUNT, dtype="int64", policy=pc.Full())
        if comm.rank == 0:
            threading.Timer(0.3, gates[0].open).start()
            call = ar.contribute(gates[0].array[PAGE : PAGE + COUNT])  # its last page is shut
            with pytest.raises(pc.StallError):
                call.wait(timeout=0.2)
            gates[1].open()
        else:
            time.sleep(0.1)
            call = ar.contribute(gates[1].array)
        call.wait(timeout=LIMIT)
        return ar.result.min(), ar.result.max()

    gates = [Gate(np.full(2 * COUNT, 1)), Gate(np.full(COUNT, 10))]
    with gates[0], gates[1]:
        assert on_board(2, program) == [(11, 11)] * 2
    gates.pop()  # the second goes first, since it puts back the handler that it has found


def test_a_second_contribution_and_a_flush_while_a_rank_is_held():
    """They wait for the next round, which is no other than without the hold."""

    def program(comm):
        ar = comm.partial_allreduce(count=COUNT, dtype="int64", policy=pc.Full(), missed="sum")
        total = np.zeros(COUNT, np.int64)
        if comm.rank == 1:
            total += ar.allreduce(gate.array, timeout=LIMIT)[0]
        else:
            time.sleep(0.1)
            ar.contribute(np.ones(COUNT, np.int64))
            ar.contribute(np.full(COUNT, 2))
            if comm.rank == 0:
                threading.Timer(0.2, gate.open).start()
        ar.flush(timeout=LIMIT)
        total += ar.result
        return total.tolist()

    gate = Gate(np.full(COUNT, 100))
    with gate:
        assert on_board(3, program) == [[100 + 3 + 3] * COUNT] * 3


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize(
    ("op", "dtype"),
    [("SUM", "float32"), ("SUM", "float16"), ("AVG", "int32"), ("AVG", "float64"), ("MAX", "int8"), ("LAND", "bool")],
)
@pytest.mark.parametrize("count", [16_384, 20_011, 300_007])
def test_arrays_of_all_kinds_in_place_and_not(size, op, dtype, count):
    """Counts with and without a rest; what is computed with is as wide as the elements, or wider."""

    def data(rank, call):
        return ((np.arange(count) * (rank + 1) + call) % 5).astype(dtype)

    def program(comm):
        with comm.partial_allreduce(count=count, dtype=dtype, op=op, policy=pc.Full()) as ar:
            for call in range(6):
                of_ranks = np.stack([data(rank, call) for rank in range(size)])
                reduce = {"SUM": np.sum, "AVG": np.mean, "MAX": np.max, "LAND": np.all}[op]
                expected = reduce(of_ranks.astype(bool if op == "LAND" else "float64"), axis=0).astype(dtype)
                x = data(comm.rank, call)
                out = x if call % 2 else np.empty_like(x)
                result, info = ar.allreduce(x, out=out, timeout=LIMIT)
                assert result is out
                assert info.contributors == tuple(range(size))
                np.testing.assert_array_equal(out, expected)
        return True

    assert all(on_board(size, program))


@pytest.mark.parametrize("ranks_per_node", [2, 3, 5])
@pytest.mark.parametrize("max_staleness", [0, 1, 3])
def test_deposits_and_ranks_that_join_in_one_round(ranks_per_node, max_staleness):
    """On several nodes who comes first leaves a deposit; under Solo it is who was not awaited."""

    def program(comm):
        policy = pc.Full() if max_staleness == 0 else pc.Solo()
        ar = comm.partial_allreduce(
            count=COUNT, dtype="int64", policy=policy, max_staleness=max_staleness, missed="sum", history=2
        )
        total, given = np.zeros(COUNT, np.int64), 0
        random = np.random.default_rng(comm.rank)
        for _ in range(40):
            time.sleep(random.choice([0.0, 0.0, 1e-3]))
            x = np.full(COUNT, 10**comm.rank)
            call = ar.contribute(x)
            x[:] = -1
            if random.random() < 0.8:
                info = call.wait(timeout=LIMIT)
                if info.round >= given:
                    total += ar.result
                    given = info.round + 1
        info = ar.flush(timeout=LIMIT)
        if info.round >= given:
            total += ar.result
        return total.tolist()

    assert run_ranks(5, program, ranks_per_node=ranks_per_node, timeout=100.0) == [[40 * 11111] * COUNT] * 5
