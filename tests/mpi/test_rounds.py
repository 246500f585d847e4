"""Which rounds there are: who is in them, who starts them, and how many can run side by side."""

from __future__ import annotations

import time

import numpy as np
import pytest
from arrivals import all_late, alternating, one_late, rotating
from checked_runs import run_script
from mpi4py import MPI
from oracle import LIMIT, Case, Recorder, check, designated_are_uniform

import pycollectives as pc

pytestmark = pytest.mark.one_communicator

WORLD = MPI.COMM_WORLD
ONE = np.ones(1, np.int64)


@pytest.mark.mpi(min_size=2)
def test_partial_rounds_really_are_partial(comm):
    """A rank that never calls is in no round."""
    ar = comm.partial_allreduce(count=1, dtype="int64", policy=pc.Solo())
    if comm.rank != 0:
        for _ in range(5):
            result, info = ar.allreduce(ONE, timeout=LIMIT)
            assert 0 not in info.contributors
            assert result[0] >= 1
    ar.flush(timeout=LIMIT)
    ar.leave()


@pytest.mark.parametrize("script", [one_late, all_late, rotating], ids=["one_late", "all_late", "rotating"])
def test_late_gradients_are_accumulated_and_totals_agree(comm, script):
    """No late gradient is lost or overwritten, and the ranks' totals are the same."""
    run_script(comm, script, missed="sum", calls=16)


def test_staleness_of_majority_is_bounded(comm):
    """What was handed over is in the next round, and a bound can be asked for."""
    run_script(comm, one_late, policy=pc.Majority(1))
    run_script(comm, one_late, policy=pc.Majority(1), max_staleness=1, late="drop")


def test_initiators_are_uniform_and_the_same_everywhere(comm):
    """The consensus of `Majority` needs no message, and no rank of it is favoured."""
    ar = comm.partial_allreduce(count=1, dtype="int64", policy=pc.Majority(seed=17))
    seen = {}
    for _ in range(200):
        info = ar.contribute(ONE).wait(timeout=LIMIT)
        seen[info.round] = info.initiator
        WORLD.Barrier()  # nobody leaves early and is replaced, and no round goes unseen
    last = ar.flush(timeout=LIMIT)
    ar.leave()
    everything = {}
    for others in WORLD.allgather(seen):
        for number, initiator in others.items():
            assert everything.setdefault(number, initiator) == initiator, f"round {number}"
    everything.pop(last.round, None)
    assert len(everything) >= 200
    assert designated_are_uniform(everything.values(), comm.size)


@pytest.mark.parametrize("policies", [(pc.Solo(), pc.Full()), (pc.Full(), pc.Majority(3))], ids=repr)
def test_synchronous_and_asynchronous_collectives_side_by_side(comm, policies):
    """They share neither buffers nor tags."""
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
        recorder.ar.leave()
        check(case, WORLD.allgather(recorder.finished()))


def test_many_collectives_with_a_round_under_way(comm):
    """120 collectives with a round under way each, then again."""
    collectives = [comm.partial_allreduce(count=2, dtype="int64", policy=pc.Full()) for _ in range(120)]
    for step in range(2):
        handles = [ar.contribute(np.array([k, step])) for k, ar in enumerate(collectives)]
        pc.wait_all(handles, timeout=LIMIT)
        for k, ar in enumerate(collectives):
            assert ar.result.tolist() == [k * comm.size, step * comm.size]
    for ar in collectives:
        ar.leave()


def test_more_collectives_and_rounds_than_eight_bits_hold(comm):
    """Collectives and rounds 0 and 256 do not meet, and neither do the user's messages."""
    mine = WORLD.irecv(source=(comm.rank - 1) % comm.size, tag=MPI.ANY_TAG)
    kept = comm.partial_allreduce(count=1, dtype="int64", policy=pc.Full())
    for _ in range(270):
        comm.partial_allreduce(count=1, dtype="int64", policy=pc.Full()).leave()
    last = comm.partial_allreduce(count=1, dtype="int64", policy=pc.Full())
    for step in range(300):
        first, second = kept.contribute(ONE * step), last.contribute(ONE * -step)
        assert (first.wait(timeout=LIMIT).round, second.wait(timeout=LIMIT).round) == (step, step)
        assert (kept.result[0], last.result[0]) == (comm.size * step, -comm.size * step)
    WORLD.send("mine", (comm.rank + 1) % comm.size, tag=1)
    assert mine.wait() == "mine"
    kept.close()
    last.leave()
