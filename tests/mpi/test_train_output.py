"""What a training tells of itself: the metrics of every step, and the summary of all its runs."""

from __future__ import annotations

import numpy as np
import pytest
from train_jobs import (
    EVERY_METHOD,
    ONE_LATE,
    ONE_SLOW,
    STEPS_PER_EPOCH,
    SUMMING,
    WORLD,
    Counting,
    P,
    after,
    count_examples,
    lines_in,
    steps_in,
    steps_taken,
    train,
)

from pycollectives.train import checkpoint, metrics
from pycollectives.train.control import ControlChannel
from pycollectives.train.models.mlp import MLP
from pycollectives.train.replica import Replica


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("method", ["eager,policy=solo", "m-synchronous,m=1"])
def test_metrics_say_who_was_late_and_what_was_missed(comm, method, output):
    summary = train(comm, method, output, epochs=1, load=ONE_LATE)
    first, *_ = lines_in(output, P - 1)
    assert first["late"]
    assert first["missed"] > 0
    lines = [line for rank in range(P) for line in lines_in(output, rank)]
    for key in ("active", "late", "missed"):
        assert getattr(summary, key) == pytest.approx(np.mean([line[key] for line in lines]))


@pytest.mark.parametrize("method", ["synchronous", "eager,policy=full", f"m-synchronous,m={P}"])
def test_nobody_is_late_where_all_are_waited_for(comm, method, output):
    summary = train(comm, method, output, epochs=1, load=ONE_LATE)
    assert (summary.active, summary.late, summary.missed) == (P, 0, 0)


def test_metrics_are_there_when_a_checkpoint_is(comm, output, monkeypatch):
    """A job that is killed after a checkpoint has the steps before it in its metrics, as the resumed run has after."""
    seen = []
    saved = checkpoint.save

    def spied(*given):
        saved(*given)
        seen.append(steps_in(output, WORLD.rank))

    monkeypatch.setattr(checkpoint, "save", spied)
    train(comm, "synchronous", output, epochs=2, settle_epochs=1)
    assert seen == [list(range(STEPS_PER_EPOCH)), list(range(2 * STEPS_PER_EPOCH))]


@pytest.mark.parametrize("method", EVERY_METHOD)
def test_a_summary_is_of_all_runs(comm, method, output, monkeypatch):
    """A run that is stopped scores nothing: it may be killed soon. The last one scores what all have left."""
    settings = {"epochs": 3, "load": ONE_SLOW}
    scored = []
    evaluate = MLP.evaluate
    monkeypatch.setattr(MLP, "evaluate", lambda model, *examples: scored.append(0) or evaluate(model, *examples))
    for steps in (STEPS_PER_EPOCH + 1, 3):
        stopped = train(comm, method, output, signalled=after(steps, rank=0), resume=True, **settings)
        assert (stopped.finished, stopped.curve, scored) == (False, (), [])
    assert stopped.epochs == 1 + 4 / STEPS_PER_EPOCH
    whole = train(comm, method, output, resume=True, **settings)
    assert [point.epoch for point in whole.curve] == [1, 2, 3, 3]
    means = 0 if whole.mean_curve == whole.curve else 2  # before the end
    assert [point.epoch for point in whole.mean_curve] == ([1, 2, 3] if means else [1, 2, 3, 3])
    assert len(scored) == (4 + means if WORLD.rank == 0 else 0)
    assert (whole.finished, whole.epochs) == (True, 3)
    moments = [point.elapsed_s for point in whole.curve]
    assert moments[0] < stopped.elapsed_s < moments[1] < moments[2] < moments[3] == whole.elapsed_s
    lines = [lines_in(output, rank) for rank in range(P)]
    assert lines[0][-1]["elapsed_s"] < whole.elapsed_s
    assert whole.steps_per_s == pytest.approx(whole.steps / whole.elapsed_s)
    for name in ("active", "late", "missed"):
        mean = np.mean([[line[name] for line in of_rank] for of_rank in lines])
        assert getattr(whole, name) == pytest.approx(mean)
    again = train(comm, method, output, resume=True, **settings)
    assert again == whole, "there was nothing left to do"
    if method == "synchronous":
        undisturbed = train(comm, method, epochs=3)
        assert [point.loss for point in undisturbed.curve] == [point.loss for point in whole.curve]


@pytest.mark.mpi(min_size=2)
def test_the_end_of_a_curve_is_that_of_all_ranks(comm, output):
    """Not that of rank 0, which has taken all its steps when a stop comes."""
    settings = {"epochs": 1, "load": ONE_LATE}
    stopped = train(comm, SUMMING[0], output, signalled=after(STEPS_PER_EPOCH, rank=0), **settings)
    assert (stopped.finished, stopped.epochs) == (False, 1)
    whole = train(comm, SUMMING[0], output, resume=True, **settings)
    assert [point.epoch for point in whole.curve] == [1, 1]
    assert stopped.elapsed_s < whole.elapsed_s == whole.curve[-1].elapsed_s


def test_scoring_is_stopped_and_resumed(comm, output, monkeypatch):
    """It may take longer than the time that is left."""
    scored = []
    evaluate = MLP.evaluate
    monkeypatch.setattr(MLP, "evaluate", lambda model, *examples: scored.append(0) or evaluate(model, *examples))
    stopped = train(comm, "synchronous", output, epochs=3, signalled=lambda: len(scored) == 2)
    assert not stopped.finished
    assert [point.epoch for point in stopped.curve] == [1, 2]
    taken = len(steps_taken)
    resumed = train(comm, "synchronous", output, epochs=3, resume=True)
    assert resumed.finished
    assert [point.epoch for point in resumed.curve] == [1, 2, 3, 3]
    assert (len(steps_taken), len(scored)) == (taken, 4 if WORLD.rank == 0 else 0)
    assert resumed.steps_per_s == stopped.steps_per_s


def test_the_clock_of_all_ranks_starts_when_all_are_ready(comm, output, monkeypatch):
    events = []

    def spy(owner, name):
        function = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *given, **more: events.append(name) or function(*given, **more))

    spy(ControlChannel, "barrier")
    spy(metrics.Clock, "start")
    spy(Replica, "step")
    train(comm, "synchronous", output, epochs=1)
    first = events.index("step")
    assert events[first - 2 : first] == ["barrier", "start"]


def test_losses_that_are_not_finite_are_counted(comm, output, monkeypatch):
    """In all runs."""
    monkeypatch.setattr(Counting, "forward", lambda model, examples: float("nan") if WORLD.rank == 0 else 0.0)
    monkeypatch.setattr(Counting, "backward", lambda model: None)
    assert count_examples(comm, "synchronous", output, epochs=1).not_finite == STEPS_PER_EPOCH
    assert count_examples(comm, "synchronous", output, epochs=2, resume=True).not_finite == 2 * STEPS_PER_EPOCH
