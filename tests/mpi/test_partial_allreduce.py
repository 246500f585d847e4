"""The partial allreduce over MPI: every policy, reduction, type and late mode under arrival scripts.

There is no barrier around the call under test: ranks drift as the script says and as the machine likes. The records of
all ranks are gathered when the collective is closed.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from arrivals import SCRIPTS, all_late, alternating, never_arrives, one_late, rotating, uneven
from checked_runs import run_case, run_script
from mpi4py import MPI
from oracle import LIMIT, Case
from reductions import SOME_PAIRS

import pycollectives as pc

pytestmark = pytest.mark.one_communicator

WORLD = MPI.COMM_WORLD


def k_of(size: int) -> int:
    """A quorum that is neither one nor all, where there is such a number."""
    return max(1, (size + 1) // 2)


def policies(size: int) -> dict[str, pc.policies.Policy]:
    k = k_of(size)
    return {
        "solo": pc.Solo(),
        "majority": pc.Majority(seed=7),
        "quorum": pc.Quorum(k),
        "quorum-grace": pc.Quorum(k, grace=1e-3),
        "quorum-auto": pc.Quorum(k, grace="auto"),
        "any-of": pc.policies.AnyOf(k, seed=3),
        "all-of": pc.policies.AllOf(k, seed=3),
        "full": pc.Full(),
    }


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
@pytest.mark.parametrize("policy", policies(1))
def test_every_policy_under_every_arrival_script(comm, policy, script):
    """Promises 1 to 5: the records of all ranks agree, are exact, and nothing is lost."""
    run_script(comm, script, policy=policies(WORLD.size)[policy])


@pytest.mark.parametrize(("op", "dtype"), SOME_PAIRS)
def test_every_reduction_of_every_type_when_one_is_late(comm, op, dtype):
    """Absent is not zero: every reduction is right with any set of contributors."""
    run_script(comm, one_late, op=op, dtype=dtype, calls=4, policy=pc.Quorum(k_of(WORLD.size)))


@pytest.mark.parametrize("late", ["accumulate", "replace", "drop"])
@pytest.mark.parametrize("policy", ["solo", "majority", "quorum"])
@pytest.mark.parametrize("script", [one_late, rotating], ids=["one_late", "rotating"])
def test_what_becomes_of_data_that_is_late(comm, late, policy, script):
    run_script(comm, script, late=late, policy=policies(WORLD.size)[policy])


@pytest.mark.parametrize("op", ["SUM", pc.AVG])
@pytest.mark.parametrize("history", [1, 3, 100])
@pytest.mark.parametrize("script", [one_late, all_late, alternating], ids=["one_late", "all_late", "alternating"])
def test_every_rank_is_given_every_round_once(comm, op, history, script):
    """Under missed="sum", also beyond the history; `overrun` says so (promise 8)."""
    run_script(
        comm, script, op=op, dtype="float64" if op == pc.AVG else "int64", missed="sum", history=history, calls=10
    )


@pytest.mark.parametrize("bound", [0, 1, 3])
@pytest.mark.parametrize("script", [one_late, rotating, uneven], ids=["one_late", "rotating", "uneven"])
def test_bounded_staleness(comm, bound, script):
    """Promise 5: a rank with nothing in so many rounds is waited for."""
    run_script(comm, script, max_staleness=bound, policy=pc.Solo())


def test_without_a_bound_nobody_waits_for_a_rank_that_never_arrives(comm):
    """Promise 6, and that the bound in the test above is what made them wait."""
    rounds = run_script(comm, never_arrives, policy=pc.Solo(), calls=20)
    if WORLD.size > 1:
        assert not any(0 in seen.contributors for seen in rounds.values())
        assert len(rounds) >= 20


@pytest.mark.parametrize("algorithm", ["recursive_doubling", "ring", "rabenseifner"])
@pytest.mark.parametrize("kibibytes", [0, 10, 1000])
def test_every_algorithm_inline_and_with_a_payload_of_its_own(comm, algorithm, kibibytes):
    """In one message or several; counts that the number of ranks does not divide."""
    calls = 3
    tiles = 1 + kibibytes * 128 // (comm.size * calls)
    run_script(comm, alternating, algorithm=algorithm, tiles=tiles, dtype="float64", calls=calls)


@pytest.mark.parametrize("activation", ["dissemination", "tree", "tree:2"])
@pytest.mark.parametrize("policy", ["solo", "quorum"])
def test_every_activation(comm, policy, activation):
    run_script(comm, alternating, policy=policies(comm.size)[policy], activation=activation)


@pytest.mark.parametrize(
    ("count", "algorithm"),
    [
        *itertools.product([0, 1, 2, 3, 7, 10_007], ["recursive_doubling", "ring", "rabenseifner"]),
        (1_000_000, "auto"),
    ],
)
def test_counts(comm, count, algorithm):
    """Fewer elements than ranks, none, a prime, many: the sum of everything ever given out is what was contributed."""
    calls = 3
    ar = comm.partial_allreduce(count=count, dtype="int64", missed="sum", algorithm=algorithm, policy="solo")
    total = np.zeros(count, np.int64)
    ramp = np.arange(count) % 97
    for _ in range(calls):
        result, info = ar.allreduce(ramp + comm.rank, timeout=LIMIT)
        assert result.shape == (count,)
        assert info.contributors
        total += result
    ar.flush(timeout=LIMIT)
    total += ar.result
    np.testing.assert_array_equal(total, calls * (comm.size * ramp + sum(range(comm.size))))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("algorithm", ["recursive_doubling", "ring", "rabenseifner"])
def test_floating_point_results_have_the_same_bits_on_all_ranks(comm, dtype, algorithm):
    """Promise 1, with numbers whose sum depends on the order."""
    rng = np.random.default_rng(100 + WORLD.rank)
    given = {}
    quorum = pc.Quorum(k_of(comm.size))
    ar = comm.partial_allreduce(count=1001, dtype=dtype, algorithm=algorithm, policy=quorum, missed="latest")
    for _ in range(5):
        x = (rng.standard_normal(1001) * 10.0 ** rng.integers(-3, 3, 1001)).astype(ar.dtype)
        result, info = ar.allreduce(x, timeout=LIMIT)
        given[info.round] = (info.contributors, result.tobytes())
    info = ar.flush(timeout=LIMIT)
    given[info.round] = (info.contributors, ar.result.tobytes())
    for others in WORLD.allgather(given):
        for number in given.keys() & others.keys():
            assert given[number] == others[number], f"round {number}"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_accumulates_in_single(comm, dtype):
    """Promise 9: one at a time, halves would stay where their last bit exceeds the addend."""
    ar = comm.partial_allreduce(count=1, dtype=dtype, policy=pc.Full())
    big, small = (2048.0, 1.0) if dtype == "float16" else (256.0, 1.0)
    x = np.array([big if comm.rank == 0 else small]).astype(ar.dtype)
    result, _ = ar.allreduce(x, timeout=LIMIT)
    expected = np.array([big + (comm.size - 1) * small]).astype(ar.dtype)
    assert result.tobytes() == expected.tobytes()


def test_a_call_with_nothing_to_wait_for_returns_while_every_other_rank_is_busy(comm):
    """Promise 6 under Solo: the others make no call before rank 0 has made all of its own, which would never return."""
    case = Case(size=WORLD.size, calls=5, policy=pc.Solo())

    def part(recorder):
        if recorder.log.rank == 0:
            for _ in range(5):
                recorder.call()
            for rank in range(1, WORLD.size):
                WORLD.send(None, dest=rank, tag=1)
        else:
            WORLD.recv(source=0, tag=1)

    rounds = run_case(comm, case, part)
    assert [rounds[number].contributors for number in range(5)] == [(0,)] * 5


def test_collectives_are_usable_after_a_flush(comm):
    case = Case(size=WORLD.size, calls=9, missed="sum")

    def part(recorder):
        for _ in range(3):
            for _ in range(3):
                recorder.call()
            recorder.flush()

    rounds = run_case(comm, case, part)
    flushes = sum(seen.flush for seen in rounds.values())
    # On a board, whoever looks so late that the flush round is in the total already is told of the newest.
    assert flushes == 4 if comm.ranks_per_node == 1 else flushes >= 4


def test_flushes_in_a_row_deliver_nothing_twice(comm):
    case = Case(size=WORLD.size, calls=1, missed="sum")

    def part(recorder):
        recorder.call()
        for _ in range(5):
            recorder.flush()

    run_case(comm, case, part)


@pytest.mark.parametrize("policy", policies(1))
def test_ranks_that_only_close_hang_nobody(comm, policy):
    """Every second rank leaves without a call; the flush of the others does not wait for it."""
    case = Case(size=WORLD.size, calls=6, policy=policies(WORLD.size)[policy])

    def part(recorder):
        if recorder.log.rank % 2 == 1:
            recorder.close()
        else:
            for _ in range(case.calls):
                recorder.call()

    run_case(comm, case, part)


@pytest.mark.parametrize("policy", policies(1))
def test_different_numbers_of_calls(comm, policy):
    """Rank r makes r calls; whoever is done is counted as arrived, so that the rest goes on."""
    case = Case(size=WORLD.size, calls=max(1, WORLD.size - 1), policy=policies(WORLD.size)[policy], missed="sum")

    def part(recorder):
        for _ in range(recorder.log.rank):
            recorder.call()

    run_case(comm, case, part)


def test_contributing_twice_before_waiting(comm):
    """Both are delivered, each once, and both handles complete."""
    case = Case(size=WORLD.size, calls=20, policy=pc.Quorum(k_of(WORLD.size)))

    def part(recorder):
        for _ in range(10):
            recorder.contribute()
            recorder.contribute()
            recorder.wait()

    run_case(comm, case, part)


def test_the_initiators_of_majority_are_drawn_from_the_seed_alone(comm):
    """Two collectives with the same seed draw the same ranks, whatever the arrivals; another seed draws others."""
    first, same, other = (
        {number: seen.initiator for number, seen in run_script(comm, script, policy=policy, calls=12).items()}
        for policy, script in ((pc.Majority(1), one_late), (pc.Majority(1), alternating), (pc.Majority(2), one_late))
    )
    in_all = [number for number in range(8) if number in first and number in same and number in other]
    assert len(in_all) == 8, "a rank that makes 12 calls is given 12 rounds"
    assert [first[number] for number in in_all] == [same[number] for number in in_all]
    if WORLD.size > 2:
        assert [first[number] for number in in_all] != [other[number] for number in in_all]


def test_progress_by_the_caller():
    """No thread: whoever waits moves messages, and `advance` serves the others meanwhile."""
    case = Case(size=WORLD.size, calls=6, policy=pc.Full(), missed="sum")
    with pc.Communicator(WORLD, progress="caller") as by_caller:
        run_case(by_caller, case, lambda recorder: [recorder.call() for _ in range(6)])


def test_a_caller_that_computes_serves_others_by_advancing():
    with pc.Communicator(WORLD, progress="caller") as comm:
        assert comm.progress == "caller"
        ar = comm.partial_allreduce(count=1, dtype="int64", policy=pc.Solo())
        if comm.rank == 0:
            for _ in range(5):
                ar.contribute(np.ones(1, np.int64)).wait(timeout=LIMIT)
        else:
            while ar.rounds < 5:
                comm.advance()
