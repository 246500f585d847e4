"""Training that is told to stop: who learns of it, and what is lost by it."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import closing

import numpy as np
import pytest
from nightly import nightly_unless
from train_jobs import (
    BATCH,
    EVERY_METHOD,
    ONE_FAST,
    ONE_LATE,
    ONE_SLOW,
    SUMMING,
    VARIANTS,
    WORLD,
    P,
    after,
    blobs,
    count_examples,
    lines_in,
    numbers,
    saved_in,
    steps_in,
    train,
    weights_in,
)

from pycollectives.train.batches import Batches
from pycollectives.train.control import ControlChannel
from pycollectives.train.loop import Training
from pycollectives.train.models.mlp import MLP
from pycollectives.train.optimizers import SGD
from pycollectives.train.registry import Choice
from pycollectives.train.replica import Replica
from pycollectives.train.synchronizers import METHODS


@pytest.mark.parametrize("method", [*EVERY_METHOD, *VARIANTS])
def test_one_rank_is_told_to_stop(comm, method, output):
    """All learn of it, whoever waits for whom; a resumed run takes the steps that are left, and no others."""
    settings = {"epochs": 3, "load": ONE_SLOW}
    stopped = train(comm, method, output, signalled=after(5), **settings)
    assert not stopped.finished
    assert stopped.is_same_on_all_ranks
    taken = [len(steps_in(output, rank)) for rank in range(P)]
    assert taken[P - 1] == 5
    if method == "synchronous":
        assert set(taken) == {5}, "nobody can be ahead"
    before = lines_in(output, WORLD.rank)
    resumed = train(comm, method, output, resume=True, **settings)
    assert resumed.finished
    assert resumed.is_same_on_all_ranks
    assert steps_in(output, WORLD.rank) == list(range(resumed.steps))
    assert lines_in(output, WORLD.rank)[: len(before)] == before


@pytest.mark.parametrize("method", nightly_unless(lambda method: method in EVERY_METHOD, [*EVERY_METHOD, *VARIANTS]))
def test_others_are_told_to_stop(comm, method, output):
    """They do not go on to the end: that would take ten seconds."""
    stopped = train(comm, method, output, signalled=after(5), epochs=400, load=ONE_FAST)
    assert not stopped.finished
    assert max(WORLD.allgather(len(steps_in(output, WORLD.rank)))) < stopped.steps


@pytest.mark.parametrize("method", [method for method in (*EVERY_METHOD, *VARIANTS) if method != "synchronous"])
def test_ranks_that_were_stopped_at_different_steps_go_on(comm, method):
    """Each from its own."""
    model = MLP(blobs(), hidden=2)
    batches = Batches(blobs(), P * BATCH, rank=WORLD.rank, ranks=P, seed=1)
    training = Training(steps=10, number=3 * (WORLD.rank % 3))
    taken = []
    with closing(METHODS.make(Choice.parse(method), comm, model, seed=1)) as synchronizer:
        replica = Replica(model, SGD(model.weights, lambda number: 1.0), synchronizer)
        with ControlChannel(comm) as control:
            assert training.run(control, replica, batches, lambda number, begin: None, observers=[taken.append])
    assert [step.number for step in taken] == list(range(3 * (WORLD.rank % 3), 10))
    assert comm.is_same_on_all_ranks(model.weights)


@pytest.mark.parametrize("method", nightly_unless(lambda method: method in EVERY_METHOD, [*EVERY_METHOD, *VARIANTS]))
def test_time_ends_a_training(comm, method, output):
    """On all ranks; a run with more time continues it."""
    settings = {"epochs": 400, "settle_epochs": 300, "load": ONE_SLOW}
    elapsed_s, steps = [], []
    for seconds in (0.1, 0.3):
        summary = train(comm, method, output, resume=True, seconds=seconds, **settings)
        assert summary.finished
        assert summary.is_same_on_all_ranks
        assert summary.elapsed_s >= seconds
        assert summary.curve[-1].epoch == summary.epochs
        assert summary.steps == max(WORLD.allgather(len(steps_in(output, WORLD.rank))))
        elapsed_s.append(summary.elapsed_s)
        steps.append(summary.steps)
    assert elapsed_s[0] < elapsed_s[1]
    assert steps[0] < steps[1] < 400 * summary.steps / summary.epochs
    taken = steps_in(output, WORLD.rank)
    assert taken == list(range(len(taken)))


def test_time_ends_a_training_by_speed(comm, output):
    settings = {"epochs": 400, "load": ONE_SLOW, "by_speed": True}
    for seconds in (0.1, 0.3):
        summary = train(comm, "ad-psgd", output, resume=True, seconds=seconds, **settings)
        assert summary.finished
        assert summary.elapsed_s >= seconds
        taken = [number for rank in range(P) for number in steps_in(output, rank)]
        assert Counter(number for number in taken if number < summary.steps) == dict.fromkeys(range(summary.steps), P)
        assert len(taken) < P * (summary.steps + 1)


@pytest.mark.parametrize("method", EVERY_METHOD)
def test_all_ranks_are_told_to_stop(comm, method, output):
    summary = train(comm, method, output, signalled=lambda: True, epochs=1)
    assert not summary.finished
    assert len(steps_in(output, WORLD.rank)) == 1


def settled_in(output):
    """How often replicas have been made equal, of those times that were due, by the newest checkpoint."""
    return json.loads(str(saved_in(output)["where"]))["settled"]


@pytest.mark.parametrize("method", ["eager,policy=solo", "ripples"])
def test_a_stop_and_the_end_put_no_settling_off(comm, method, output):
    """Those that are due every so many epochs come, whatever else makes replicas equal."""
    settings = {"epochs": 1.5, "settle_epochs": 1, "load": ONE_SLOW}
    for steps in (2, 1):
        assert not train(comm, method, output, signalled=after(steps), resume=True, **settings).finished
        assert settled_in(output) == 0
    settled = []
    for epochs in (1.5, 2.5, 4):
        train(comm, method, output, resume=True, **{**settings, "epochs": epochs})
        settled.append(settled_in(output))
    assert settled == [1, 2, 4]


@pytest.mark.parametrize("seed", nightly_unless(lambda seed: seed == 1, [1, 2]))
@pytest.mark.parametrize("method", SUMMING)
def test_no_gradient_is_lost_by_a_stop(comm, method, seed, output):
    """Ranks stop in different steps, if the machine lets them; what waits is in the checkpoint, once."""
    asked = int(np.random.default_rng(seed).integers(2, 10))
    settings = {"epochs": 4, "load": ONE_SLOW}
    assert not count_examples(comm, method, output, signalled=after(asked), **settings).finished
    np.testing.assert_array_equal(weights_in(output), examples_taken(output))
    (*_, last) = count_examples(comm, method, output, resume=True, **settings).curve
    assert (last.accuracy, last.loss) == (4, 4)


def examples_taken(output):
    """How often each example was in a step, of all ranks, by their metrics."""
    times = np.zeros(len(weights_in(output)))
    for rank in range(P):
        share = Batches(numbers(), P * BATCH, rank=rank, ranks=P, seed=1)
        for number in steps_in(output, rank):
            times[share(number)[0]] += 1
    return times


@pytest.mark.parametrize("seed", nightly_unless(lambda seed: seed == 1, [1, 2]))
@pytest.mark.parametrize("mode", ["standard", "notify-ack", "standard,max_ig=1,computation=serial"])
def test_no_gradient_is_lost_where_hop_is_stopped(comm, mode, seed, output):
    """The mean of the replicas has each of the steps that were taken once, by whomever. Ranks stop in different ones.

    In the complete graph every rank averages with all that take part in its iteration: the sum of them stays. Of other
    graphs it does not, where some ranks have ended.
    """
    method = f"hop,topology=complete,mode={mode}"
    settings = {"epochs": 4, "load": ONE_SLOW}
    for asked in np.random.default_rng(seed).integers(2, 10, 2):
        assert not count_examples(comm, method, output, signalled=after(asked), resume=True, **settings).finished
        np.testing.assert_allclose(weights_in(output), examples_taken(output), atol=1e-4)
    (*_, last) = count_examples(comm, method, output, resume=True, **settings).curve
    assert (last.accuracy, last.loss) == pytest.approx((4, 4), abs=1e-4)


MODES = ["backup:1", "staleness:2", "skip:3", "staleness:3+skip:2"]


@pytest.mark.parametrize("mode", nightly_unless(lambda mode: mode in ("backup:1", "staleness:3+skip:2"), MODES))
def test_hop_that_is_stopped_goes_on_in_every_mode(comm, mode, output):
    """Each rank from its own step. None is taken twice, and none is left out but where the mode skips."""
    settings = {"epochs": 6, "load": ONE_LATE}
    method = f"hop,topology=ring,mode={mode}"
    for asked in (2, 3):
        stopped = train(comm, method, output, signalled=after(asked), resume=True, **settings)
        assert (stopped.finished, stopped.is_same_on_all_ranks) == (False, True)
        before = lines_in(output, WORLD.rank)
    resumed = train(comm, method, output, resume=True, **settings)
    assert (resumed.finished, resumed.is_same_on_all_ranks) == (True, True)
    assert lines_in(output, WORLD.rank)[: len(before)] == before
    taken = WORLD.allgather(steps_in(output, WORLD.rank))
    assert all(steps == sorted(set(steps)) for steps in taken)
    assert resumed.skipped == pytest.approx(1 - sum(map(len, taken)) / (P * resumed.steps))
    if "skip" not in mode or P == 1:
        assert taken == [list(range(resumed.steps))] * P
    else:
        assert len(taken[P - 1]) < resumed.steps, "the late rank has skipped none"
    assert resumed.curve[-1].accuracy > 0.9
