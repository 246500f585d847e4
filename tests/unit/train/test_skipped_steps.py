"""A method that skips steps: what the loop makes of a jump, on one rank."""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI

import pycollectives as pc
from pycollectives.train import checkpoint, job, metrics, schedules
from pycollectives.train.archive import read
from pycollectives.train.batches import Batches
from pycollectives.train.models.hyperplane import Hyperplane
from pycollectives.train.optimizers import SGD
from pycollectives.train.replica import Step
from pycollectives.train.settings import Settings
from pycollectives.train.synchronizers import METHODS, Synchronizer

STEPS = 4
"""Of an epoch."""

EPOCHS = 5

SMALL = {"model": "hyperplane", "data": f"hyperplane,dimensions=2,points={8 * STEPS},validation=8", "batch": 8}


class Skipping(Synchronizer):
    """Takes the steps that a test names, and goes from each to the next one."""

    taken: tuple[int, ...] = ()

    def __init__(self, comm, model):
        self.begun, self.updated = [], []

    def begin(self, weights, number):
        self.begun.append(number)
        return min([step for step in self.taken if step >= number], default=10**9)

    def update(self, model, optimizer, number):
        self.updated.append(number)
        super().update(model, optimizer, number)


@pytest.fixture
def jumps(monkeypatch):
    """Set the steps that the method takes."""
    monkeypatch.setattr(METHODS, "_entries", {**METHODS._entries, "skipping": f"{__name__}:Skipping"})
    return lambda *taken: monkeypatch.setattr(Skipping, "taken", taken)


@pytest.fixture
def comm():
    with pc.Communicator(MPI.COMM_SELF) as made:
        yield made


def train(comm, output, *, resume=False, signalled=lambda: False, **settings):
    said = {**SMALL, "method": "skipping", "epochs": EPOCHS, "output": output, **settings}
    return job.run(Settings.of(said), comm, is_signalled=signalled, resume=resume)


def seen(monkeypatch, kind, name):
    """The numbers with which a method of a class is called, as its last argument."""
    numbers, kept = [], getattr(kind, name)

    def spied(self, *arguments):
        numbers.append(arguments[-1])
        return kept(self, *arguments)

    monkeypatch.setattr(kind, name, spied)
    return numbers


def test_batches_rates_and_metrics_are_those_of_the_steps_that_are_taken(comm, tmp_path, jumps, monkeypatch):
    taken = [0, 1, 6, 7, 8, 13, 19]
    jumps(*taken)
    batches, updates = seen(monkeypatch, Batches, "__call__"), seen(monkeypatch, SGD, "update")
    epochs = []
    monkeypatch.setattr(schedules, "constant", lambda: lambda epoch: epochs.append(epoch) or 1.0)
    summary = train(comm, tmp_path)
    assert batches == updates == taken
    assert epochs == [number / STEPS for number in taken]
    lines = metrics.read(tmp_path / "metrics-rank-0000.jsonl")
    assert [line["number"] for line in lines] == taken
    assert (summary.finished, summary.epochs) == (True, EPOCHS)
    assert summary.steps_per_s * summary.elapsed_s == pytest.approx(len(taken)), "those that were taken"
    assert summary.skipped == 1 - len(taken) / (STEPS * EPOCHS)


def test_the_curve_has_a_replica_for_each_epoch_in_which_there_was_a_step(comm, tmp_path, jumps):
    """Two epochs are over with step 9, of which the first has no replica of its own; at the end is the settled one."""
    jumps(0, 3, 9, 11, 12)
    assert [point.epoch for point in train(comm, tmp_path).curve] == [1, 2.5, 3, 5]


def test_a_jump_ends_where_replicas_settle(comm, tmp_path, jumps, monkeypatch):
    """At steps 8 and 16, where the other ranks wait, and at the end."""
    jumps(2, 5, 9, 11, 18)
    made = []
    monkeypatch.setattr(Skipping, "leave", lambda method: made.append(method.begun[:]) or method.begun.clear())
    numbers = []
    save = checkpoint.save
    monkeypatch.setattr(
        checkpoint, "save", lambda *given: numbers.append((given[2].number, given[2].settled)) or save(*given)
    )
    assert train(comm, tmp_path, settle_epochs=2).finished
    assert made == [[0, 3, 6], [8, 10, 12], [16, 19]]
    assert numbers == [(8, 1), (16, 2), (20, 2)]


def test_a_run_that_was_stopped_goes_on_behind_the_steps_that_were_skipped(comm, tmp_path, jumps, monkeypatch):
    """And keeps the metrics of the steps that were taken."""
    jumps(0, 6, 7, 14, 19)
    updates = seen(monkeypatch, Skipping, "update")
    stopped = train(comm, tmp_path, signalled=lambda: len(updates) == 2)
    assert (stopped.finished, stopped.skipped) == (False, 5 / 7), "of the steps before the next one"
    (path,) = tmp_path.glob("checkpoint/step-*/rank-0000.npz")
    assert path.parent.name == "step-00000007.0"
    assert '"number": 7' in str(read(path)["where"])
    resumed = train(comm, tmp_path, resume=True)
    assert (resumed.finished, resumed.skipped) == (True, 15 / 20)
    assert train(comm, tmp_path, resume=True).skipped == 15 / 20, "a run that takes no step"
    lines = metrics.read(tmp_path / "metrics-rank-0000.jsonl")
    assert [line["number"] for line in lines] == [0, 6, 7, 14, 19]


def test_a_rank_that_is_stopped_where_replicas_settle_takes_no_step_before_they_do(comm, tmp_path, jumps, monkeypatch):
    jumps(*range(100))
    updates = seen(monkeypatch, Skipping, "update")
    assert not train(comm, tmp_path, settle_epochs=1, signalled=lambda: len(updates) == STEPS).finished
    assert [path.name for path in tmp_path.glob("checkpoint/step-*")] == ["step-00000004.0"]
    stopped = lambda: len(updates) == STEPS + 1  # noqa: E731
    assert not train(comm, tmp_path, settle_epochs=1, resume=True, signalled=stopped).finished
    assert [path.name for path in tmp_path.glob("checkpoint/step-*")] == ["step-00000005.1"]


def test_skipped_steps_change_nothing(comm, tmp_path, jumps):
    """The weights are those of a loop over the steps that are taken."""
    taken = (0, 3, 4, 9)
    jumps(*taken)
    train(comm, tmp_path)
    (path,) = tmp_path.glob("checkpoint/step-*/rank-0000.npz")
    plan = job.Plan.of(Settings.of(SMALL), rank=0, ranks=1)
    model = Hyperplane(plan.dataset, seed=1)
    optimizer = SGD(model.weights, lambda number: 1.0)
    for number in taken:
        model.forward(*plan.batches(number))
        model.backward()
        optimizer.update(model.weights, model.gradient, number)
    np.testing.assert_array_equal(read(path)["weights"], model.weights)


def test_progress_is_seen_where_a_method_skips_the_steps_at_which_it_is_due(capsys):
    with metrics.Progress("skipping", 0, 40) as progress:
        for number in (0, 2, 6, 7, 8, 24, 25, 39):
            progress(Step(number, 0.0, 0.0, 0.0, 1, False, 0))
    shown = [line.split(":")[0] for line in capsys.readouterr().err.splitlines()]
    assert shown == [f"step {done} of 40" for done in (7, 8, 25, 40)]
