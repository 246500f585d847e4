"""The nine promises over MPI: every rank plays a random part, drawn from a printed seed; the oracle judges the records.

`PYC_TEST_SEED` and `PYC_TEST_CASES` choose other cases and more of them.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace

import numpy as np
import pytest
from arrivals import play_actions, random_case, random_part
from mpi4py import MPI
from oracle import Recorder, check

import pycollectives as pc

pytestmark = pytest.mark.one_communicator

WORLD = MPI.COMM_WORLD
SEED = int(os.environ.get("PYC_TEST_SEED", "2020"))
CASES = int(os.environ.get("PYC_TEST_CASES", "24"))


@pytest.mark.parametrize("seed", range(SEED, SEED + CASES))
def test_promises_hold_whatever_ranks_do(comm, seed):
    """All of them: random calls, unfinished calls, flushes and early closes, on one collective."""
    draw = random.Random(seed)  # the same on all ranks
    case, flushes = random_case(draw, comm.size), draw.randint(0, 2)
    actions = random_part(random.Random(seed * 1009 + comm.rank), case, flushes)
    print(f"seed {seed}: {case}; rank {comm.rank} does {actions}")
    with comm.partial_allreduce(**case.arguments) as ar:
        recorder = Recorder(comm.rank, ar, case)
        play_actions(actions, recorder)
    logs = WORLD.allgather(recorder.finished())
    rounds = check(case, logs)
    assert all(log.closed for log in logs) or rounds[max(rounds)].flush, "there is a round after the last flush"


@pytest.mark.parametrize("seed", range(SEED, SEED + CASES // 8))
def test_promises_hold_of_several_collectives_at_once(comm, seed):
    """Four at a time, each with its own arguments, called and waited for in an order of each rank's own.

    One of them may wait for a certain rank's next call. If two did, two ranks could wait for each other, each in
    another collective (docs/semantics.md).
    """
    draw = random.Random(~seed)
    others = [replace(random_case(draw, comm.size, calls=5), policy=policy) for policy in (pc.Solo(), pc.Full()) * 2]
    cases = [random_case(draw, comm.size, calls=5), *others[:3]]
    print(f"seed {seed}: {cases}")
    mine = random.Random(seed * 1009 + comm.rank)
    recorders = [Recorder(comm.rank, comm.partial_allreduce(**case.arguments), case) for case in cases]
    for _ in range(5):
        for recorder in mine.sample(recorders, 4):
            recorder.contribute()
        for recorder in mine.sample(recorders, 4):
            recorder.wait()
    for recorder in recorders:  # in one order everywhere, since a flush waits for all ranks
        recorder.flush()
        recorder.ar.leave()
    for case, recorder in zip(cases, recorders, strict=True):
        rounds = check(case, WORLD.allgather(recorder.finished()))
        assert rounds[max(rounds)].flush, "there is a round after the last flush"


@pytest.mark.parametrize("calls_twice", [0.02, 0.3])
def test_nothing_is_lost_when_rounds_are_taken_over_at_any_moment(comm, calls_twice):
    """Of many short rounds of Full, in which a rank now and then calls again before it waits: promises 2 and 3."""
    calls, limit = 3000 // comm.size, 60.0
    draw = random.Random(comm.rank)
    total = np.zeros(2, np.int64)
    with comm.partial_allreduce(total, policy=pc.Full(), missed="sum") as ar:
        for call in range(calls):
            x = np.array([1, comm.rank * calls + call])
            if draw.random() < calls_twice:
                ar.contribute(x)
            else:
                total += ar.allreduce(x, timeout=limit)[0]
        ar.flush(timeout=limit)
        total += ar.result
    contributions = comm.size * calls
    assert total.tolist() == [contributions, contributions * (contributions - 1) // 2]
