"""Training that goes on from a checkpoint: as one that was never stopped, and with no other settings."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from train_jobs import (
    BATCH,
    ONE_SLOW,
    STEPS_PER_EPOCH,
    WAITING,
    WORLD,
    P,
    after,
    refused_everywhere,
    steps_in,
    train,
    weights_in,
)


def test_synchronous_training_is_repeatable(comm, output):
    """Bit for bit, however the ranks are delayed, wherever they settle, and however often it is stopped and resumed."""
    settings = {"epochs": 2, "optimizer": "sgd,rate=0.2,momentum=0.9,weight_decay=0.001"}
    train(comm, "synchronous", output / "a", **settings)
    train(comm, "synchronous", output / "b", load="lognormal,work_ms=0.5,skew_ms=1", **settings)
    for asked in (3, 6):
        train(comm, "synchronous", output / "c", signalled=after(asked, rank=0), resume=True, **settings)
    assert train(comm, "synchronous", output / "c", resume=True, **settings).finished
    undisturbed = weights_in(output / "a").tobytes()
    assert [weights_in(output / name).tobytes() == undisturbed for name in "bc"] == [True, True]


@pytest.mark.parametrize("optimizer", ["sgd,rate=0.2,momentum=0.9,weight_decay=0.001", "adam"])
@pytest.mark.parametrize("method", [*WAITING, "ripples", "ripples,groups=static", "ad-psgd", "a2cid2", "hop", "eamsgd"])
def test_to_resume_what_is_finished_changes_nothing(comm, method, optimizer, output):
    settings = {"epochs": 1, "optimizer": optimizer}
    train(comm, method, output, **settings)
    before = weights_in(output)
    assert train(comm, method, output, resume=True, **settings).finished
    np.testing.assert_allclose(weights_in(output), before, rtol=1e-6, atol=1e-7)  # averaged once more: rounding


@pytest.mark.parametrize("schedule", ["constant", "milestones,at=1.5:2", "warmup,epochs=2", "cosine,epochs=3"])
def test_a_finished_training_can_be_lengthened(comm, schedule, output):
    """And has then the bits of one that was as long from the start, also where replicas settle on the way."""
    settings = {"optimizer": "sgd,rate=0.2,momentum=0.9,weight_decay=0.001", "schedule": schedule}
    train(comm, "synchronous", output / "a", epochs=3, **settings)
    for epochs in (1, 2.25, 3):
        longer = train(comm, "synchronous", output / "b", epochs=epochs, resume=True, **settings)
        assert longer.finished
        assert longer.steps == epochs * STEPS_PER_EPOCH
    assert weights_in(output / "a").tobytes() == weights_in(output / "b").tobytes()
    assert steps_in(output / "b", WORLD.rank) == list(range(3 * STEPS_PER_EPOCH))


def test_a_job_is_not_resumed_with_other_settings(comm, output):
    train(comm, "synchronous", output, epochs=1)
    for other in ({"seed": 2}, {"batch": 2 * P * BATCH}, {"optimizer": "sgd,rate=0.1"}):
        resumed = partial(train, comm, "synchronous", output, resume=True, **{"epochs": 1, **other})
        refused_everywhere(f"a run with {next(iter(other))} = ", resumed)
    assert train(comm, "synchronous", output, epochs=1, load=ONE_SLOW, resume=True).finished, "a load may change"
    shorter = partial(train, comm, "synchronous", output, resume=True, epochs=0.5)
    refused_everywhere(f"a run that has taken {STEPS_PER_EPOCH} steps; this run takes {STEPS_PER_EPOCH // 2}", shorter)
