"""The mean model of all ranks at the ends of epochs, and the time at which all ranks had reached them."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from train_jobs import WORLD, P, train

from pycollectives.train.curve import Curve
from pycollectives.train.loop import Training
from pycollectives.train.mean_model import Parts
from pycollectives.train.models.base import Model, Score
from pycollectives.train.replica import Step

STEPS_PER_EPOCH = 2
DRIFTING = ["d-psgd", "sgp", "ad-psgd", "a2cid2", "eamsgd", "hop", "ripples", "eager,missed=latest"]


class OneWeight(Model):
    """Its loss is its weight, and its accuracy a running statistic; beside them it counts."""

    def __init__(self):
        self.weights, self.gradient = np.zeros(1, np.float32), np.zeros(1, np.float32)
        self.kept = {"mean": np.zeros(1), "count": np.zeros(1, np.int64), "mask": np.ones(1, bool)}

    def set(self, value):
        self.weights[:], self.kept["mean"][:], self.kept["count"][:] = value, value / 10, value

    def forward(self, *batch):
        raise NotImplementedError

    def backward(self):
        raise NotImplementedError

    def state(self):
        return {name: array.copy() for name, array in self.kept.items()}

    def load_state(self, state):
        self.kept = dict(state)

    def evaluate(self, *examples):
        assert self.kept["mask"].all()
        return Score(float(self.weights[0]), float(self.kept["mean"][0] + self.kept["count"][0]))


def kept(folder, numbers, *, share=1.0, resumed=0, steps=6):
    """The points of the mean model, of ranks whose replica is `10 rank + steps`, and takes these steps."""
    model, training = OneWeight(), Training(steps, number=resumed)
    parts = Parts(folder / f"rank-{WORLD.rank}", model, STEPS_PER_EPOCH, lambda: 100 * WORLD.rank + training.number)
    curve = Curve(folder, model, STEPS_PER_EPOCH, lambda: 0.0) if WORLD.rank == 0 else None
    with contextlib.closing(parts):
        parts.go_on(training, lambda weights: None if share is None else (weights, share))
        for number in numbers:
            training.number = number + 1
            model.set(10 * WORLD.rank + number + 1)
            parts(Step(number, 0.0, 0.0, 0.0, 1, False, 0))
        if training.number < steps:
            return None  # stopped
        parts.average(WORLD, curve, steps)
        WORLD.Barrier()
        parts.forget()
        WORLD.Barrier()
        if curve is None:
            return None
        curve.go_on(training)
        curve.end(steps, 1000.0)
        curve.score((), lambda: False)
        return curve.mean_points


def expected(shares, values):
    return np.average(values, weights=shares)


@pytest.fixture
def folder(output):
    """The same for all ranks."""
    output.mkdir(exist_ok=True)
    WORLD.Barrier()
    return output


def test_means_are_weighted_and_known_when_the_last_rank_is_there(folder):
    points = kept(folder, range(6), share=WORLD.rank + 1.0)
    if WORLD.rank:
        return
    shares = np.arange(P) + 1.0
    for epoch, point in enumerate(points[:-1], 1):
        values = 10 * np.arange(P) + 2 * epoch
        assert point.epoch == epoch
        assert point.elapsed_s == 100 * (P - 1) + 2 * epoch
        assert point.loss == pytest.approx(expected(shares, values))
        assert point.accuracy == pytest.approx(expected(shares, values) / 10 + max(values)), "the largest count"
    assert len(points) == 3, "at the end all replicas are the mean model"
    assert (points[-1].epoch, points[-1].elapsed_s) == (3, 1000)
    assert not [*folder.glob("rank-*")]


def test_a_rank_that_skips_the_end_of_an_epoch_gives_its_newest_part(folder):
    """The last rank takes only steps 2 and 5: it has no part of epoch 1, and that of epoch 2 comes a step late."""
    is_last = WORLD.rank == P - 1 > 0
    points = kept(folder, [2, 5] if is_last else range(6))
    if WORLD.rank:
        return
    rest = 10 * np.arange(P - 1 if P > 1 else 1)
    # Step 2 is the first after the end of epoch 1.
    first = [*(rest + 2), 10 * (P - 1) + 3] if P > 1 else rest + 2
    second = [*(rest + 4), 10 * (P - 1) + 3] if P > 1 else rest + 4
    assert [point.loss for point in points[:2]] == pytest.approx([np.mean(first), np.mean(second)])


def test_a_rank_without_a_part_is_left_out(folder):
    points = kept(folder, range(6), share=None if WORLD.rank == P - 1 > 0 else 1.0)
    if WORLD.rank == 0:
        losses = [np.mean(10 * np.arange(max(1, P - 1)) + steps) for steps in (2, 4)]
        assert [point.loss for point in points[:2]] == pytest.approx(losses)


def test_parts_of_earlier_runs_count_and_those_after_a_checkpoint_do_not(folder):
    """A run is killed after 4 steps; the next begins after 3, from a checkpoint, and skips the end of epoch 2."""
    assert kept(folder, range(4)) is None
    points = kept(folder, [5], resumed=3)
    if WORLD.rank == 0:
        assert [point.epoch for point in points] == [1, 3]
        assert points[0].elapsed_s == 100 * (P - 1) + 2


@pytest.mark.parametrize("method", DRIFTING)
@pytest.mark.parametrize("by_speed", [False, True])
def test_methods_whose_replicas_drift_apart_have_a_mean_model(comm, method, by_speed):
    summary = train(comm, method, epochs=4, by_speed=by_speed)
    mean, replica = summary.mean_curve, summary.curve
    assert [point.epoch for point in mean] == [1, 2, 3, 4]
    assert mean[-1] == replica[-1], "all replicas are equal at the end"
    moments = [point.elapsed_s for point in mean]
    assert moments == sorted(moments)
    assert mean[0].elapsed_s >= replica[0].elapsed_s


@pytest.mark.parametrize("method", ["synchronous", "eager,policy=solo", "parameter-server,sync=asp"])
def test_equal_replicas_are_the_mean_model(comm, method):
    summary = train(comm, method, epochs=2)
    assert summary.mean_curve == summary.curve
