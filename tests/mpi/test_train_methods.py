"""Training on several ranks: what every method does, and how one is added."""

from __future__ import annotations

import numpy as np
import pytest
from train_jobs import (
    EVERY_METHOD,
    ONE_FAST,
    ONE_SLOW,
    STEPS_PER_EPOCH,
    VARIANTS,
    WORLD,
    P,
    after,
    count_examples,
    saved_in,
    steps_in,
    train,
)

from pycollectives.train.replica import Replica
from pycollectives.train.synchronizers import METHODS, GradientSynchronizer, WeightSynchronizer


@pytest.mark.parametrize("method", [*EVERY_METHOD, *VARIANTS])
def test_every_method_learns(comm, method):
    summary = train(comm, method, epochs=6, load="lognormal,work_ms=0.2,skew_ms=0.2")
    assert summary.finished
    assert summary.steps == 6 * STEPS_PER_EPOCH
    assert summary.is_same_on_all_ranks
    first, *_, last = summary.curve
    assert last.loss < min(0.5, first.loss), summary.curve
    assert last.accuracy > 0.9
    assert 1 <= summary.active <= P


@pytest.mark.parametrize(("settle_epochs", "load"), [(0.5, ONE_SLOW), (None, ONE_FAST)])
@pytest.mark.parametrize("method", [*EVERY_METHOD, *VARIANTS])
def test_ranks_of_different_speeds(comm, method, settle_epochs, load, output):
    """They meet when replicas settle, and whoever has taken all steps waits for the others."""
    summary = train(comm, method, output, epochs=1.5, settle_epochs=settle_epochs, load=load)
    assert summary.finished
    assert summary.is_same_on_all_ranks
    assert steps_in(output, WORLD.rank) == list(range(summary.steps))


def test_groups_are_formed_only_to_go_on(comm, monkeypatch):
    """Once, and after each time that replicas were made equal but the last."""
    made = []
    make = comm.partial_reduce
    monkeypatch.setattr(comm, "partial_reduce", lambda like, **options: made.append(0) or make(like, **options))
    assert train(comm, "ripples", epochs=3, settle_epochs=1).finished
    assert len(made) == 3


@pytest.mark.parametrize("method", ["synchronous", "eager,policy=solo", "ripples", "ad-psgd", "hop,mode=staleness:2"])
def test_running_statistics_are_averaged_when_replicas_settle(comm, method, output):
    assert count_examples(comm, method, output, model="keeping", epochs=1).is_same_on_all_ranks
    saved = saved_in(output)
    np.testing.assert_array_equal(saved["model.mean"], np.full(2, (P - 1) / 2, np.float32))
    assert saved["model.count"] == 10 + P - 1


@pytest.mark.mpi(min_size=2)
def test_replicas_with_other_running_statistics_are_not_equal(comm, monkeypatch):
    monkeypatch.setattr(Replica, "_equalize_state", lambda *arguments: None)
    assert not count_examples(comm, "synchronous", model="keeping", epochs=1).is_same_on_all_ranks


class Alone(GradientSynchronizer):
    """A method that this file adds: each rank trains alone, and models are averaged once, at the end."""

    def __init__(self, comm, model, *, scale=1):
        self._comm, self._scale = comm, scale

    def combine(self, gradient):
        return gradient * self._scale

    def equalize(self, weights):
        weights[:] = self._comm.mpi_comm.allreduce(weights) / self._comm.size


def test_a_method_is_added_by_one_class(comm, monkeypatch):
    monkeypatch.setattr(METHODS, "_entries", dict(METHODS._entries))
    METHODS.add("alone", f"{__name__}:Alone")
    summary = train(comm, "alone,scale=1", epochs=6)
    assert summary.is_same_on_all_ranks
    assert summary.curve[-1].accuracy > 0.9
    with pytest.raises(ValueError, match="'alone': unknown option 'odd'; its options are scale"):
        train(comm, "alone,odd=1")


class Striding(WeightSynchronizer):
    """Rank r takes each (r + 1)th step, and skips the others, as a method does whose slow ranks catch up."""

    def __init__(self, comm, model):
        super().__init__(comm)

    def begin(self, weights, number):
        stride = WORLD.rank + 1
        return -(-number // stride) * stride


@pytest.mark.parametrize("settle_epochs", [0.75, None])
def test_ranks_that_skip_steps_settle_with_the_others(comm, settle_epochs, output, monkeypatch):
    """Wherever that is due, and once more where one is stopped; a resumed run goes on where each rank was."""
    monkeypatch.setattr(METHODS, "_entries", {**METHODS._entries, "striding": f"{__name__}:Striding"})
    settings = {"epochs": 3, "settle_epochs": settle_epochs}
    assert not train(comm, "striding", output, signalled=after(3, rank=0), **settings).finished
    summary = train(comm, "striding", output, resume=True, **settings)
    assert (summary.finished, summary.is_same_on_all_ranks, summary.epochs) == (True, True, 3)
    assert steps_in(output, WORLD.rank) == list(range(0, summary.steps, WORLD.rank + 1))
