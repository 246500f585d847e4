"""Ranks die in a training that continues without them.

train_survives.py RANKS METHOD FOLDER VICTIM:WHEN...: WHEN is the step in which the victim dies, or a number with "s":
seconds after its communicator is made.
"""

from pathlib import Path

import numpy as np
from common import WORLD, arguments, say
from death import die, die_later

import pycollectives as pc
from pycollectives.train import job, metrics
from pycollectives.train.replica import Replica
from pycollectives.train.settings import Settings

method, folder, *deaths = arguments()
when = {int(victim): moment for victim, _, moment in (death.partition(":") for death in deaths)}
folder = Path(folder)
settings = Settings.of(
    {
        "method": method,
        "model": "hyperplane",
        "data": "hyperplane,dimensions=3,points=480",
        "optimizer": "sgd,rate=0.02",
        "load": "equal,work_ms=1",
        "batch": 8 * WORLD.size,
        "epochs": 12,
        "settle_epochs": 2,
        "output": folder,
    }
)
mine = when.get(WORLD.rank, "")
step = Replica.step


def mortal(replica, number, *given):
    """Take a step, or die in it."""
    if mine.isdigit() and number >= int(mine):
        die()
    return step(replica, number, *given)


Replica.step = mortal


def reference(summary, steps_before):
    """Return the weights of synchronous SGD with fewer ranks from a step on, computed in this process."""
    plan = job.Plan.of(settings, rank=0, ranks=WORLD.size)
    model = job.MODELS.make(settings.model, plan.dataset, seed=settings.seed)
    for number in range(plan.steps):
        ranks = WORLD.size if number < steps_before else summary.ranks
        gradients = []
        for rank in range(ranks):
            model.forward(*plan.batches.among(rank=rank, ranks=ranks)(number))
            model.backward()
            gradients.append(model.gradient.copy())
        model.weights -= 0.02 * np.mean(gradients, axis=0)
    return model.weights


comm = pc.Communicator(WORLD.Dup(), timeout=30.0)
if mine.endswith("s"):
    die_later(float(mine[:-1]))
summary = job.run(settings, comm, on_failure="continue")
assert summary.finished
assert summary.is_same_on_all_ranks
assert all(victim in summary.lost for victim, moment in when.items() if moment.isdigit()), summary.lost
assert summary.ranks == WORLD.size - len(summary.lost)
assert summary.curve[-1].loss < 3.65, (summary.lost, summary.curve[-3:])  # of the noise 3.54; at the beginning 3.75
numbers = [line["number"] for line in metrics.read(folder / f"metrics-rank-{WORLD.rank:04d}.jsonl")]
assert numbers == sorted({*numbers}), "a step stands twice in the metrics"
if method == "synchronous":
    missing = sorted({*range(summary.steps)} - {*numbers})  # received with the state of another rank
    assert len(missing) <= len(summary.lost), missing
    if len(summary.lost) == 1 and deaths[0].partition(":")[2].isdigit():
        latest = folder / "checkpoint" / (folder / "checkpoint" / "latest").read_text()
        weights = np.load(latest / "rank-0000.npz")["weights"]
        expected = reference(summary, steps_before=int(deaths[0].partition(":")[2]))
        assert np.allclose(weights, expected, rtol=1e-4, atol=1e-5), (weights, expected)
        say("exact")
say("lost:", *summary.lost)
say("end")
