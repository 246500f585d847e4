"""The nine promises of a partial allreduce as properties: ranks are threads, messages are delayed at random.

Promise 6 (liveness) and 7 (stability) are part of every case: a call that hangs fails by its time limit, and the
recorder overwrites what it contributed and compares results with what they were when given. Promise 9 for long payloads
is in tests/mpi.
"""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest
from arrivals import SCRIPTS, play, play_actions, random_part
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from oracle import Case, Recorder, check, designated_are_uniform
from reductions import PAIRS

import pycollectives as pc
from pycollectives.testing import loopback, run_ranks

RELAXED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@pytest.fixture(autouse=True, params=[1, 2, "all"], ids=["flat", "mixed", "board"])
def ranks_per_node(request, monkeypatch):
    """Everything here holds whether ranks share memory or not."""
    monkeypatch.setitem(loopback.__kwdefaults__, "ranks_per_node", request.param)
    return request.param


def run(case, part, *, delay=0.0, seed=0):
    """Let every rank do its part on one collective, flush it, and return the checked rounds."""

    def program(comm):
        recorder = Recorder(comm.rank, comm.partial_allreduce(**case.arguments), case)
        part(recorder)
        return recorder.finished()

    return check(case, run_ranks(case.size, program, delay=delay, seed=seed, timeout=100.0))


@st.composite
def policies(draw, size):
    kind = draw(st.sampled_from([pc.Solo, pc.Majority, pc.Quorum, pc.policies.AnyOf, pc.policies.AllOf, pc.Full]))
    if kind in (pc.Solo, pc.Full):
        return kind()
    if kind is pc.Majority:
        return pc.Majority(draw(st.integers(0, 2**64 - 1)))
    k = draw(st.integers(1, size))
    if kind is pc.Quorum:
        return pc.Quorum(k, grace=draw(st.sampled_from([0.0, 0.0, 1e-3, "auto"])))
    return kind(k, draw(st.integers(0, 2**64 - 1)))


@st.composite
def cases(draw):
    size = draw(st.integers(1, 9))
    op, dtype = draw(st.just(("SUM", "int64")) | st.sampled_from(PAIRS))
    return Case(
        size=size,
        calls=draw(st.integers(1, 10)),
        policy=draw(policies(size)),
        op=op,
        dtype=dtype,
        late=draw(st.sampled_from(["accumulate", "accumulate", "replace", "drop"])),
        missed=draw(st.sampled_from(["latest", "sum"])) if op in ("SUM", "AVG") else "latest",
        max_staleness=draw(st.sampled_from([None, None, 0, 1, 3])),
        history=draw(st.sampled_from([1, 2, 8])),
        algorithm=draw(st.sampled_from(["auto", "recursive_doubling", "ring", "rabenseifner"])),
        tiles=draw(st.sampled_from([1, 1, 3, 500])),  # the last: ranks join rounds
    )


@settings(RELAXED, max_examples=60)
@given(case=cases(), flushes=st.integers(0, 2), seed=st.integers(0, 2**32), delay=st.sampled_from([0.0, 0.3e-3]))
def test_promises_hold_whatever_ranks_do(case, flushes, seed, delay):
    """All of them: random calls, unfinished calls, flushes and early closes."""
    parts = [random_part(random.Random(seed * 64 + rank), case, flushes) for rank in range(case.size)]
    note(f"seed {seed}, {case}")
    run(case, lambda recorder: play_actions(parts[recorder.log.rank], recorder), delay=delay, seed=seed)


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
@pytest.mark.parametrize("policy", [pc.Solo(), pc.Majority(3), pc.Quorum(2), pc.policies.AllOf(2, 5)], ids=repr)
def test_running_totals_are_conserved_under_every_arrival_script(script, policy):
    """Promise 3, in "sum" mode: every rank's running total is the sum of all contributions."""
    case = Case(size=4, calls=8, policy=policy, missed="sum", history=2)

    def part(recorder):
        play(script, recorder, case)
        recorder.flush()

    run(case, part, delay=0.2e-3, seed=1)


@pytest.mark.parametrize("tiles", [40, pytest.param(4000, marks=pytest.mark.large)])
def test_data_is_not_taken_while_more_is_being_added_to_it(tiles):
    """Promise 7: `contribute` hands over in one step, also when it adds to what waits, and a round starts meanwhile."""
    case = Case(size=3, calls=48, policy=pc.Majority(seed=1), missed="sum", tiles=tiles)

    def part(recorder):
        for _ in range(case.calls // 4):
            for _ in range(4):
                recorder.contribute()
            recorder.wait()
        recorder.flush()

    run(case, part)


@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_the_initiator_of_majority_is_uniform(size):
    """Promise 4. Each rank calls as often as it likes; whose turn it is was drawn beforehand."""
    calls = 300

    def program(comm):
        ar = comm.partial_allreduce(count=1, dtype="int64", policy=pc.Majority(seed=11))
        x = np.ones(1, np.int64)
        told = set()
        for _ in range(calls):
            info = ar.contribute(x).wait(timeout=60.0)
            told.add((info.round, info.initiator))
            together.wait(60.0)  # so that every round is seen: whose rounds go unseen depends on the initiator
        return told

    together = threading.Barrier(size)
    initiators = dict(set.union(*run_ranks(size, program, timeout=100.0)))
    assert len(initiators) == calls
    assert designated_are_uniform(initiators.values(), size), initiators
