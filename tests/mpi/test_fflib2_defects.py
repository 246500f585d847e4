"""Every defect known of fflib2, the published implementation of eager-SGD, and of its Python side: not here.

One test for each, named after it. What happened in fflib2 at a level that has no counterpart here is tested by the
nearest behaviour that a user would see.
"""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from arrivals import all_late, alternating, one_late, play, rotating
from mpi4py import MPI
from oracle import LIMIT, Case, Recorder, check, designated_are_uniform

import pycollectives as pc

WORLD = MPI.COMM_WORLD
ONE = np.ones(1, np.int64)


@pytest.fixture(scope="module")
def comm():
    with pc.Communicator(WORLD) as communicator:
        yield communicator


def run(comm, script, **arguments):
    case = Case(size=comm.size, **{"calls": 8, **arguments})
    with comm.partial_allreduce(**case.arguments) as ar:
        recorder = Recorder(comm.rank, ar, case)
        play(script, recorder, case)
        recorder.flush()
    return check(case, WORLD.allgather(recorder.finished()))


@pytest.mark.parametrize("algorithm", ["recursive_doubling", "ring", "rabenseifner"])
def test_sums_are_right_when_the_number_of_ranks_is_no_power_of_two(comm, algorithm):
    """fflib2: wrong sums at every such P. Here at every P at which this suite runs, and in groups of 1 to P ranks."""
    for size in range(1, WORLD.size + 1):
        group = WORLD.Split(0 if WORLD.rank < size else MPI.UNDEFINED, WORLD.rank)
        if group == MPI.COMM_NULL:
            continue
        with pc.Communicator(group) as part:
            ar = part.partial_allreduce(count=3, dtype="int64", policy=pc.Full(), algorithm=algorithm)
            result, info = ar.allreduce(np.array([1, 10**part.rank, -part.rank]), timeout=LIMIT)
            assert info.contributors == tuple(range(size))
            assert result.tolist() == [size, int("1" * size), -size * (size - 1) // 2]
        group.Free()


def test_one_rank_alone():
    """fflib2: crash at P = 1."""
    with pc.Communicator(MPI.COMM_SELF) as alone:
        for policy in (pc.Solo(), pc.Majority(1), pc.Quorum(1), pc.AnyOf(1), pc.AllOf(1), pc.Full()):
            ar = alone.partial_allreduce(count=2, dtype="f4", policy=policy, missed="sum")
            for step in range(3):
                result, info = ar.allreduce(np.full(2, step, "f4"), timeout=LIMIT)
                assert (result.tolist(), info.contributors, info.initiator) == ([step, step], (0,), 0)
            assert ar.flush(timeout=LIMIT).contributors == ()


def test_no_torn_results(comm):
    """fflib2: the user fills the buffer while the progress thread copies it, and results change under the reader.

    Each contribution is one value in all elements, then at once another; each result must be one value in all elements,
    when it comes and later, while further rounds run.
    """
    count = 200_003
    ar = comm.partial_allreduce(count=count, dtype="int64", policy=pc.Solo())
    x, kept = np.empty(count, np.int64), []
    for step in range(12):
        x[:] = step + 1
        handle = ar.contribute(x)
        x[:] = -1
        handle.wait(LIMIT)
        kept.append((ar.result, int(ar.result[0])))
        for result, value in kept[-3:]:
            assert value > 0
            assert (result == value).all()
    ar.flush(timeout=LIMIT)
    assert all((result == value).all() for result, value in kept)
    ar.close()


@pytest.mark.parametrize("script", [one_late, all_late, rotating], ids=["one_late", "all_late", "rotating"])
def test_late_gradients_are_accumulated_and_totals_agree(comm, script):
    """fflib2: late gradients are overwritten, 485 to 490 of 800 applied at P = 4, and the ranks' totals diverge."""
    run(comm, script, missed="sum", calls=16)


@pytest.mark.parametrize("policies", [(pc.Solo(), pc.Full()), (pc.Full(), pc.Majority(3))], ids=repr)
def test_synchronous_and_asynchronous_collectives_side_by_side(comm, policies):
    """fflib2: both kinds share a buffer and a tag, so that results exceed P."""
    cases = [Case(size=comm.size, calls=6, policy=policy, missed="sum") for policy in policies]
    recorders = [Recorder(comm.rank, comm.partial_allreduce(**case.arguments), case) for case in cases]
    for step in range(6):
        time.sleep(alternating(comm.rank, comm.size, step) * 0.5e-3)
        for recorder in recorders:
            recorder.contribute()
        for recorder in recorders:
            recorder.wait()
    # The majority's first: a rank may still wait in it for one that has made all of its calls, but has not left it.
    for case, recorder in reversed(list(zip(cases, recorders, strict=True))):
        recorder.flush()
        recorder.ar.close()
        check(case, WORLD.allgather(recorder.finished()))


def test_many_schedules(comm):
    """fflib2: a request table of fixed size overflows. 120 collectives with a round under way each, then again."""
    collectives = [comm.partial_allreduce(count=2, dtype="int64", policy=pc.Full()) for _ in range(120)]
    for step in range(2):
        handles = [ar.contribute(np.array([k, step])) for k, ar in enumerate(collectives)]
        pc.wait_all(handles, timeout=LIMIT)
        for k, ar in enumerate(collectives):
            assert ar.result.tolist() == [k * comm.size, step * comm.size]
    for ar in collectives:
        ar.close()


def test_staleness_of_majority_is_bounded(comm):
    """fflib2: unbounded. What was handed over is in the next round, and a bound can be asked for."""
    run(comm, one_late, policy=pc.Majority(1))
    run(comm, one_late, policy=pc.Majority(1), max_staleness=1, late="drop")


@pytest.mark.parametrize("op", ["PROD", "MIN", "MAX", pc.AVG])
def test_other_reductions_than_sum(comm, op):
    """fflib2: SUM only; MAX crashes. Negative numbers too, since absent is not zero."""
    run(comm, one_late, op=op)
    ar = comm.partial_allreduce(count=1, dtype="f8", op=op, policy=pc.Solo())
    result, info = ar.allreduce(np.full(1, -2.0 - comm.rank), timeout=LIMIT)
    values = [-2.0 - rank for rank in info.contributors]
    expected = {"PROD": np.prod(values), "MIN": min(values), "MAX": max(values), pc.AVG: np.mean(values)}[op]
    assert result[0] == pytest.approx(expected)
    ar.flush(timeout=LIMIT)
    ar.close()


def test_more_collectives_and_rounds_than_eight_bits_hold(comm):
    """fflib2: tags of 8 bits on the user's communicator. Collectives and rounds 0 and 256, and the user's."""
    mine = WORLD.irecv(source=(comm.rank - 1) % comm.size, tag=MPI.ANY_TAG)
    kept = comm.partial_allreduce(count=1, dtype="int64", policy=pc.Full())
    for _ in range(270):
        comm.partial_allreduce(count=1, dtype="int64", policy=pc.Full()).close()
    last = comm.partial_allreduce(count=1, dtype="int64", policy=pc.Full())
    for step in range(300):
        first, second = kept.contribute(ONE * step), last.contribute(ONE * -step)
        assert (first.wait(LIMIT).round, second.wait(LIMIT).round) == (step, step)
        assert (kept.result[0], last.result[0]) == (comm.size * step, -comm.size * step)
    WORLD.send("mine", (comm.rank + 1) % comm.size, tag=1)
    assert mine.wait() == "mine"
    kept.close()
    last.close()


def test_partial_rounds_really_are_partial(comm):
    """fflib2's tests had a barrier around every call. Without one, a rank that never calls is in no round."""
    if comm.size == 1:
        pytest.skip("needs a rank that is absent")
    ar = comm.partial_allreduce(count=1, dtype="int64", policy=pc.Solo())
    if comm.rank != 0:
        for _ in range(5):
            result, info = ar.allreduce(ONE, timeout=LIMIT)
            assert 0 not in info.contributors
            assert result[0] >= 1
    ar.flush(timeout=LIMIT)
    ar.close()


def test_a_failure_is_not_a_completion(comm):
    """fflib2: an error macro makes every error 1, which means "completed". A call that fails completes nothing."""
    ar = comm.partial_allreduce(count=1, dtype="int64", policy=pc.Full())
    rounds = ar.rounds
    for wrong in (np.ones(2, np.int64), np.ones(1)):
        with pytest.raises((ValueError, TypeError)):
            ar.contribute(wrong)
    assert ar.rounds == rounds
    if comm.size > 1:
        handle = None
        if comm.rank != 0:
            handle = ar.contribute(ONE)
            with pytest.raises(pc.StallError):
                handle.wait(0.0)
            assert not handle.test()
            WORLD.send(None, 0, tag=3)
        else:
            for rank in range(1, comm.size):
                WORLD.recv(source=rank, tag=3)
            handle = ar.contribute(ONE)
        assert handle.wait(LIMIT).contributors == tuple(range(comm.size))
    ar.close()


def test_no_wake_up_is_lost(comm):
    """fflib2: the completion flag is not atomic. Many short rounds, some found by testing, some by waiting."""
    ar = comm.partial_allreduce(count=1, dtype="int64", policy=pc.Full())
    for step in range(400):
        handle = ar.contribute(ONE)
        if (step + comm.rank) % 3 == 0:
            end = time.monotonic() + LIMIT
            while not handle.test():
                assert time.monotonic() < end
        assert handle.wait(LIMIT).round == step
        assert ar.result[0] == comm.size
    ar.close()


def test_the_thread_level_is_checked_when_mpi_is_initialised_already(comm):
    """fflib2: unchecked. See tests/launch for what happens at a lower level."""
    assert MPI.Query_thread() == MPI.THREAD_MULTIPLE
    assert comm.progress == "thread"


def test_a_sleeping_program_does_not_burn_its_core(comm):
    """fflib2: a busy loop. The bar is in bench/idle.py; a loop that never sleeps would use all of the time here."""
    ar = comm.partial_allreduce(count=1, dtype="int64")
    time.sleep(0.05)
    cpu, wall = time.process_time(), time.monotonic()
    time.sleep(0.4)
    used = (time.process_time() - cpu) / (time.monotonic() - wall)
    assert used < 0.5, f"{100 * used:.0f} % of a core"
    ar.flush(timeout=LIMIT)
    ar.close()


def test_the_interpreter_is_free_while_a_call_waits(comm):
    """The Python side held the GIL. Another thread of this process answers while this one waits for the last rank."""
    if comm.size == 1:
        pytest.skip("needs a rank to wait for")
    ar = comm.partial_allreduce(count=1, dtype="int64", policy=pc.Full())
    if comm.rank == comm.size - 1:
        for rank in range(comm.size - 1):
            WORLD.recv(source=rank, tag=9)
    else:

        def tell():
            time.sleep(0.05)
            WORLD.send(None, comm.size - 1, tag=9)

        teller = threading.Thread(target=tell)
        teller.start()
    assert ar.allreduce(ONE, timeout=LIMIT)[0][0] == comm.size
    ar.close()


def test_initiators_are_uniform_and_the_same_everywhere(comm):
    """The consensus of `Majority` needs no message, and no rank of it is favoured."""
    ar = comm.partial_allreduce(count=1, dtype="int64", policy=pc.Majority(seed=17))
    seen = {}
    for _ in range(200):
        info = ar.contribute(ONE).wait(LIMIT)
        seen[info.round] = info.initiator
        WORLD.Barrier()  # nobody leaves early and is replaced, and no round goes unseen
    last = ar.flush(timeout=LIMIT)
    ar.close()
    everything = {}
    for others in WORLD.allgather(seen):
        for number, initiator in others.items():
            assert everything.setdefault(number, initiator) == initiator, f"round {number}"
    everything.pop(last.round, None)
    assert len(everything) >= 200
    assert designated_are_uniform(everything.values(), comm.size)
