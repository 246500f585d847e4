"""Training on several ranks: what every method does, what is exact, stops, checkpoints.

Every job here is that of the command line, `job.run`; weights are read from the checkpoint that it writes at its end.
"""

from __future__ import annotations

import json
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from mpi4py import MPI

import pycollectives as pc
from pycollectives.train import checkpoint, job, metrics
from pycollectives.train.batches import Batches
from pycollectives.train.datasets import DATASETS
from pycollectives.train.datasets.base import Dataset
from pycollectives.train.loop import Replica, Training
from pycollectives.train.models import MODELS
from pycollectives.train.models.base import Model, Score
from pycollectives.train.models.mlp import MLP
from pycollectives.train.optimizers import SGD
from pycollectives.train.peers import Peers
from pycollectives.train.registry import Choice
from pycollectives.train.settings import Settings
from pycollectives.train.synchronizers import METHODS, Synchronizer
from pycollectives.train.synchronizers.eager import Eager

WORLD = MPI.COMM_WORLD
P = WORLD.size
BATCH, STEPS_PER_EPOCH = 8, 8
"""Of one rank."""

OPTIONS = {"m-synchronous": f"m-synchronous,m={(P + 1) // 2}"}
"""How a method is written that cannot be used without options."""

EVERY_METHOD = [OPTIONS.get(name, name) for name in METHODS.names if name != "ddp"]
VARIANTS = [
    *("eager,policy=solo", "eager,policy=quorum:1,missed=sum", "eager,policy=full", "eager,average=contributors"),
    *("eager,policy=solo,max_staleness=2", "ripples,groups=random", "ripples,groups=static,ranks_per_node=2"),
    *("ripples,groups=punctual,every=3",),
]
ONE_SLOW, ONE_FAST = "one-slow,work_ms=0.5,factor=10", "one-slow,work_ms=3,factor=0.1"
ONE_LATE = "one-slow,work_ms=0.5,factor=100"  # however loaded the machine is


# --- What is trained


def blobs(*, seed=0):
    """Three clouds in four dimensions."""
    random = np.random.default_rng(seed)
    labels = np.arange(P * BATCH * STEPS_PER_EPOCH) % 3
    inputs = (random.standard_normal((len(labels), 4)) + 3 * np.eye(3, 4)[labels]).astype(np.float32)
    return Dataset((inputs, labels), (inputs, labels))


def numbers():
    """Examples that are nothing but their numbers."""
    examples = np.arange(P * BATCH * STEPS_PER_EPOCH)
    return Dataset((examples,), (examples,))


class Counting(Model):
    """How often each example was applied to this replica: with SGD of rate 1, a gradient adds 1 to those of its batch.

    Exact, for gradients are multiples of the number of ranks, by which they are divided.
    """

    def __init__(self, dataset):
        self.weights = np.zeros(len(dataset.train[0]), np.float32)
        self.gradient = np.zeros_like(self.weights)

    def forward(self, *batch):
        (self._examples,) = batch
        return 0.0

    def backward(self):
        self.gradient[:] = 0
        self.gradient[self._examples] = -P

    def evaluate(self, *examples):
        return Score(float(self.weights.max()), float(self.weights.min()))


_taken = []
"""The numbers of the steps that this rank has taken, of all jobs one after the other."""


@pytest.fixture(autouse=True)
def _counted(monkeypatch):
    step = Replica.step

    def counted(replica, number, *arguments):
        _taken.append(number)
        return step(replica, number, *arguments)

    monkeypatch.setattr(Replica, "step", counted)


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    """Data sets, models and methods of this file, for one test."""
    for registry in (DATASETS, MODELS, METHODS):
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    DATASETS.add("blobs", f"{__name__}:blobs")
    DATASETS.add("numbers", f"{__name__}:numbers")
    MODELS.add("counting", f"{__name__}:Counting")


@pytest.fixture
def output(tmp_path):
    """One folder for all ranks."""
    yield Path(WORLD.bcast(str(tmp_path)))
    WORLD.Barrier()


@pytest.fixture
def comm():
    with pc.Communicator(WORLD) as made:
        yield made


def train(comm, method, output=None, *, signalled=lambda: False, resume=False, **settings):
    said = {"data": "blobs", "model": "mlp,hidden=8", "optimizer": "sgd,rate=0.2", "batch": P * BATCH, **settings}
    return job.run(
        Settings.of({"method": method, "output": output, **said}), comm, is_signalled=signalled, resume=resume
    )


def count_examples(comm, method, output=None, **settings):
    given = {"data": "numbers", "model": "counting", "optimizer": "sgd,rate=1", **settings}
    return train(comm, method, output, **given)


def weights_in(output, rank=WORLD.rank):
    """A rank's weights in the newest checkpoint."""
    folder = output / "checkpoint"
    with np.load(folder / (folder / "latest").read_text() / f"rank-{rank:04d}.npz") as file:
        return file["weights"]


def settled_in(output):
    """How often replicas have been made equal, of those times that were due, by the newest checkpoint."""
    folder = output / "checkpoint"
    with np.load(folder / (folder / "latest").read_text() / f"rank-{WORLD.rank:04d}.npz") as file:
        return json.loads(str(file["where"]))["settled"]


def lines_in(output, rank):
    """A rank's metrics file."""
    return metrics.read(output / f"metrics-rank-{rank:04d}.jsonl")


def steps_in(output, rank):
    """The steps in a rank's metrics file."""
    return [line["number"] for line in lines_in(output, rank)]


def after(steps, rank=P - 1):
    """Tells one rank to stop, when it has taken so many steps from now on."""
    stop = len(_taken) + steps
    return lambda: WORLD.rank == rank and len(_taken) >= stop


# --- Every method


@pytest.mark.parametrize("method", [*EVERY_METHOD, *VARIANTS])
def test_every_method_learns(comm, method):
    summary = train(comm, method, epochs=6, load="lognormal,work_ms=0.2,skew_ms=0.2")
    assert summary.finished
    assert summary.steps == 6 * STEPS_PER_EPOCH
    assert summary.same_everywhere
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
    assert summary.same_everywhere
    assert steps_in(output, WORLD.rank) == list(range(summary.steps))


@pytest.mark.parametrize("method", [*EVERY_METHOD, *VARIANTS])
def test_one_rank_is_told_to_stop(comm, method, output):
    """All learn of it, whoever waits for whom; a resumed run takes the steps that are left, and no others."""
    settings = {"epochs": 3, "load": ONE_SLOW}
    stopped = train(comm, method, output, signalled=after(5), **settings)
    assert not stopped.finished
    assert stopped.same_everywhere
    taken = [len(steps_in(output, rank)) for rank in range(P)]
    assert taken[P - 1] == 5
    if method == "synchronous":
        assert set(taken) == {5}, "nobody can be ahead"
    before = metrics.read(output / f"metrics-rank-{WORLD.rank:04d}.jsonl")
    resumed = train(comm, method, output, resume=True, **settings)
    assert resumed.finished
    assert resumed.same_everywhere
    assert steps_in(output, WORLD.rank) == list(range(resumed.steps))
    assert metrics.read(output / f"metrics-rank-{WORLD.rank:04d}.jsonl")[: len(before)] == before


@pytest.mark.parametrize("method", [*EVERY_METHOD, *VARIANTS])
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
        with Peers(comm) as peers:
            assert training.run(peers, replica, batches, lambda number, begin: None, observers=[taken.append])
    assert [step.number for step in taken] == list(range(3 * (WORLD.rank % 3), 10))
    assert comm.same_everywhere(model.weights)


@pytest.mark.parametrize("method", EVERY_METHOD)
def test_all_ranks_are_told_to_stop(comm, method, output):
    summary = train(comm, method, output, signalled=lambda: True, epochs=1)
    assert not summary.finished
    assert len(steps_in(output, WORLD.rank)) == 1


@pytest.mark.parametrize("method", ["eager,policy=solo", "m-synchronous,m=1"])
def test_metrics_say_who_was_late_and_what_was_missed(comm, method, output):
    if P == 1:
        pytest.skip("nobody can be late")
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


def test_groups_are_formed_only_to_go_on(comm, monkeypatch):
    """Once, and after each time that replicas were made equal but the last."""
    made = []
    make = comm.partial_reduce
    monkeypatch.setattr(comm, "partial_reduce", lambda **options: made.append(0) or make(**options))
    assert train(comm, "ripples", epochs=3, settle_epochs=1).finished
    assert len(made) == 3


class Keeping(Counting):
    """Has running statistics and a count beside its weights."""

    def __init__(self, dataset):
        super().__init__(dataset)
        self.kept = {"mean": np.full(2, WORLD.rank, np.float32), "count": np.array(10 + WORLD.rank)}

    def state(self):
        return {name: array.copy() for name, array in self.kept.items()}

    def load_state(self, state):
        self.kept = dict(state)


@pytest.mark.parametrize("method", ["synchronous", "eager,policy=solo", "ripples"])
def test_running_statistics_are_averaged_when_replicas_settle(comm, method, output):
    MODELS.add("keeping", f"{__name__}:Keeping")
    assert count_examples(comm, method, output, model="keeping", epochs=1).same_everywhere
    folder = output / "checkpoint"
    with np.load(folder / (folder / "latest").read_text() / f"rank-{WORLD.rank:04d}.npz") as file:
        np.testing.assert_array_equal(file["model.mean"], np.full(2, (P - 1) / 2, np.float32))
        assert file["model.count"] == 10 + P - 1


def test_running_statistics_are_in_a_checkpoint(output):
    saved, loaded = (
        Replica(Keeping(numbers()), SGD(np.zeros(0, np.float32), lambda number: 1.0), Synchronizer()) for _ in "ab"
    )
    saved.model.kept["mean"][:] = 5
    checkpoint.save(output, WORLD, Training(9), saved, AS_JSON)
    checkpoint.load(output, WORLD, Training(9), loaded, AS_JSON)
    np.testing.assert_array_equal(loaded.model.kept["mean"], [5, 5])
    assert loaded.model.kept["count"] == 10 + WORLD.rank


def test_replicas_with_other_running_statistics_are_not_equal(comm, monkeypatch):
    if P == 1:
        pytest.skip("there is one replica")
    MODELS.add("keeping", f"{__name__}:Keeping")
    monkeypatch.setattr(Replica, "_equalize_state", lambda *arguments: None)
    assert not count_examples(comm, "synchronous", model="keeping", epochs=1).same_everywhere


class Alone(Synchronizer):
    """A method that this file adds: each rank trains alone, and models are averaged once, at the end."""

    def __init__(self, comm, model, *, scale=1):
        self._comm, self._scale = comm, scale

    def combine(self, gradient):
        return gradient * self._scale

    def equalize(self, weights):
        weights[:] = self._comm.comm.allreduce(weights) / self._comm.size


def test_a_method_is_added_by_one_class(comm):
    METHODS.add("alone", f"{__name__}:Alone")
    summary = train(comm, "alone,scale=1", epochs=6)
    assert summary.same_everywhere
    assert summary.curve[-1].accuracy > 0.9
    with pytest.raises(ValueError, match="'alone': unknown option 'odd'; its options are scale"):
        train(comm, "alone,odd=1")


# --- What is exact


def sgd_of_one_process(steps, *, momentum=0.0, rate=0.2, seed=1):
    """The same training, by a loop over whole batches."""
    dataset = blobs(seed=seed)
    model = MLP(dataset, hidden=8, seed=seed)
    optimizer = SGD(model.weights, lambda number: 1.0, rate=rate, momentum=momentum)
    shares = [Batches(dataset, P * BATCH, rank=rank, ranks=P, seed=seed) for rank in range(P)]
    for number in range(steps):
        model.forward(*(np.concatenate(parts) for parts in zip(*(share(number) for share in shares), strict=True)))
        model.backward()
        optimizer.update(model.weights, model.gradient, number)
    return model.weights


WAITING = ["synchronous", "eager,policy=full", "eager,policy=full,missed=sum", f"m-synchronous,m={P}"]
"""Methods whose every step waits for all."""


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("method", WAITING)
def test_methods_that_wait_for_all_are_sgd_on_the_whole_batch(comm, method, momentum, output):
    train(comm, method, output, epochs=2, optimizer=f"sgd,rate=0.2,momentum={momentum}")
    reference = sgd_of_one_process(2 * STEPS_PER_EPOCH, momentum=momentum)
    np.testing.assert_allclose(weights_in(output), reference, rtol=1e-4, atol=1e-5)


def test_the_default_batch_is_that_of_one_process(comm, output):
    """Whatever the number of ranks: counts are whole numbers, exactly, and each example is in one rank's share."""
    summary = count_examples(comm, "synchronous", output, batch=None, epochs=1)
    assert (summary.batch % P, summary.batch // 64) == (0, 1)
    taken = summary.steps * summary.batch
    assert sorted(weights_in(output)) == [0.0] * (P * BATCH * STEPS_PER_EPOCH - taken) + [1.0] * taken


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
@pytest.mark.parametrize("method", [*WAITING, "ripples", "ripples,groups=static"])
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


SUMMING = ["eager,policy=solo,missed=sum", "eager,policy=majority,missed=sum", "eager,policy=quorum:1,missed=sum"]


@pytest.mark.parametrize("load", ["lognormal,work_ms=0.5,skew_ms=1", ONE_SLOW, ONE_FAST])
@pytest.mark.parametrize("method", SUMMING)
def test_every_gradient_is_applied_once(comm, method, load, monkeypatch):
    """To every replica, before models are averaged, which could hide that one has lost what another has twice."""
    equal = []
    equalize = Eager.equalize

    def spied(synchronizer, weights):
        equal.append(comm.same_everywhere(weights))
        equalize(synchronizer, weights)

    monkeypatch.setattr(Eager, "equalize", spied)
    (*_, last) = count_examples(comm, method, epochs=3, settle_epochs=1.25, load=load).curve
    assert (last.accuracy, last.loss) == (3, 3), "the least and the most that any example was applied"
    assert equal == [True] * 3


def test_every_gradient_is_applied_once_if_models_are_not_linear_in_what_is_missed(comm):
    """`missed="latest"`: rounds are lost to a rank, on purpose. That this is seen shows that counting sees it."""
    if P == 1:
        pytest.skip("nobody can be late")
    (*_, last) = count_examples(comm, "eager,policy=solo", epochs=3, load=ONE_LATE).curve
    assert last.accuracy < 3


@pytest.mark.parametrize(("method", "dropped"), [("m-synchronous,m=1", True), (SUMMING[2], False)])
def test_m_synchronous_drops_what_comes_late(comm, method, dropped):
    """What the slow rank computes while the others take all their steps; alone, its gradients are not divided by P."""
    if P == 1:
        pytest.skip("nobody can be late")
    (*_, last) = count_examples(comm, method, epochs=1, load=ONE_LATE).curve
    assert (last.accuracy == 0, last.loss > 1) == (dropped, dropped)


def results_of(monkeypatch):
    """What `combine` will have returned to this rank, step by step; copies."""
    results = []
    combine = Eager.combine

    def spied(synchronizer, gradient):
        mean = combine(synchronizer, gradient)
        results.append(mean.copy())
        return mean

    monkeypatch.setattr(Eager, "combine", spied)
    return results


@pytest.mark.parametrize("load", [ONE_SLOW, ONE_FAST])
@pytest.mark.parametrize("policy", ["solo", "majority", "quorum:1"])
def test_only_gradients_count_as_contributors(comm, policy, load, monkeypatch):
    """Each is the same here, and so is their mean: a rank that is absent would make it less, if it counted as zeros."""
    results = results_of(monkeypatch)
    monkeypatch.setattr(Counting, "backward", lambda model: model.gradient.fill(P))
    count_examples(comm, f"eager,policy={policy},average=contributors,late=replace", epochs=2, load=load)
    assert len(results) == 2 * STEPS_PER_EPOCH
    assert {float(value) for mean in results for value in np.unique(mean)} == {float(P)}


REPLACING = "eager,policy=quorum:1,missed=sum,average=contributors,late=replace"
"""`m-synchronous,m=1`, but that the newest late gradient waits for the next round."""


@pytest.mark.parametrize(("method", "dropped"), [("m-synchronous,m=1", True), (REPLACING, False)])
def test_m_synchronous_keeps_nothing_that_comes_late(comm, method, dropped, output):
    """Not for the flush either, by which the slow rank's only gradient would be applied."""
    if P == 1:
        pytest.skip("nobody can be late")
    count_examples(comm, method, output, epochs=1 / STEPS_PER_EPOCH, load="one-slow,work_ms=1,factor=1000")
    share = Batches(numbers(), P * BATCH, rank=P - 1, ranks=P, seed=1)
    (examples,) = share(0)
    assert (not weights_in(output)[examples].any()) == dropped


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("method", SUMMING)
def test_no_gradient_is_lost_by_a_stop(comm, method, seed, output):
    """Ranks stop in different steps, if the machine lets them; what waits is in the checkpoint, once."""
    asked = int(np.random.default_rng(seed).integers(2, 10))
    settings = {"epochs": 4, "load": ONE_SLOW}
    assert not count_examples(comm, method, output, signalled=after(asked), **settings).finished
    shares = [Batches(numbers(), P * BATCH, rank=rank, ranks=P, seed=1) for rank in range(P)]
    taken = [len(steps_in(output, rank)) for rank in range(P)]
    expected = np.zeros(len(weights_in(output)))
    for rank, share in enumerate(shares):
        for number in range(taken[rank]):
            expected[share(number)[0]] += 1
    np.testing.assert_array_equal(weights_in(output), expected)
    (*_, last) = count_examples(comm, method, output, resume=True, **settings).curve
    assert (last.accuracy, last.loss) == (4, 4)


# --- The summary of a training that was stopped


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
    assert len(scored) == (4 if WORLD.rank == 0 else 0)
    assert (whole.finished, whole.epochs) == (True, 3)
    moments = [point.elapsed_s for point in whole.curve]
    assert moments[0] < stopped.elapsed_s < moments[1] < moments[2] < moments[3] == whole.elapsed_s
    lines = [metrics.read(output / f"metrics-rank-{rank:04d}.jsonl") for rank in range(P)]
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


def test_the_end_of_a_curve_is_that_of_all_ranks(comm, output):
    """Not that of rank 0, which has taken all its steps when a stop comes."""
    if P == 1:
        pytest.skip("nobody can be late")
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
    taken = len(_taken)
    resumed = train(comm, "synchronous", output, epochs=3, resume=True)
    assert resumed.finished
    assert [point.epoch for point in resumed.curve] == [1, 2, 3, 3]
    assert (len(_taken), len(scored)) == (taken, 4 if WORLD.rank == 0 else 0)
    assert resumed.steps_per_s == stopped.steps_per_s


def test_the_clock_of_all_ranks_starts_when_all_are_ready(comm, output, monkeypatch):
    events = []

    def spy(owner, name):
        function = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *given, **more: events.append(name) or function(*given, **more))

    spy(Peers, "meet")
    spy(metrics.Clock, "start")
    spy(Replica, "step")
    train(comm, "synchronous", output, epochs=1)
    first = events.index("step")
    assert events[first - 2 : first] == ["meet", "start"]


def test_losses_that_are_not_finite_are_counted(comm, output, monkeypatch):
    """In all runs."""
    monkeypatch.setattr(Counting, "forward", lambda model, examples: float("nan") if WORLD.rank == 0 else 0.0)
    monkeypatch.setattr(Counting, "backward", lambda model: None)
    assert count_examples(comm, "synchronous", output, epochs=1).not_finite == STEPS_PER_EPOCH
    assert count_examples(comm, "synchronous", output, epochs=2, resume=True).not_finite == 2 * STEPS_PER_EPOCH


# --- Checkpoints


class Saved(NamedTuple):
    training: Training
    replica: Replica


def replica_of(value, *, momentum=0.9):
    """A replica whose every number is `value`, and where it stands."""
    model = MLP(blobs(), hidden=2)
    model.weights[:] = value
    optimizer = SGD(model.weights, lambda number: 1.0, momentum=momentum)
    for array in optimizer.state().values():
        array[:] = -value
    return Saved(
        Training(100, number=10 * value + WORLD.rank, settled=value), Replica(model, optimizer, Synchronizer())
    )


SETTING = {"seed": 1, "method": Choice("synchronous")}
AS_JSON = {"seed": 1, "method": {"name": "synchronous", "options": {}}}


def save(folder, value, world=WORLD, setting=AS_JSON):
    checkpoint.save(folder, world, *replica_of(value), setting)


def loaded(folder, world=WORLD, setting=AS_JSON):
    """What is in the newest checkpoint: this rank's value, if all its numbers are that."""
    saved = replica_of(0)
    checkpoint.load(folder, world, *saved, setting)
    (value,) = {*np.unique(saved.replica.model.weights), *np.unique(-saved.replica.optimizer.state()["velocity"])}
    assert (saved.training.number, saved.training.settled) == (10 * value + WORLD.rank, value)
    return value


def refused_everywhere(text, call, *arguments):
    """The call raises a ValueError with this text on every rank."""
    with pytest.raises(ValueError, match=text) as raised:
        call(*arguments)
    assert len(set(WORLD.allgather(str(raised.value)))) == 1


def test_the_newest_checkpoint_is_kept_alone(output):
    assert not checkpoint.exists(output, WORLD)
    for value in (1, 2, 3):
        save(output, value)
        assert checkpoint.exists(output, WORLD)
        assert loaded(output) == value
        assert len(list(output.glob("step-*"))) == 1
        WORLD.Barrier()


def test_a_checkpoint_of_other_ranks_is_refused(output):
    if P == 1:
        pytest.skip("there are no fewer")
    part = WORLD.Split(color=int(WORLD.rank == P - 1), key=WORLD.rank)
    if WORLD.rank < P - 1:
        save(output, 1, part)
    WORLD.Barrier()
    part.Free()
    refused_everywhere(f"was written by {P - 1} ranks, these are {P}", loaded, output)


def test_what_other_ranks_have_left_there_is_no_hindrance(output):
    """A run that begins anew, in the folder of one with more ranks."""
    save(output, 1)
    if WORLD.rank == 0:
        (where,) = output.glob("step-*")
        (where / f"rank-{P:04d}.npz").write_bytes(b"of one more rank")
        (output / "step-00000099.9").mkdir()
        (output / "step-00000099.9" / "rank-0000.npz").write_bytes(b"of a run that was killed")
    WORLD.Barrier()
    refused_everywhere("ranks", loaded, output)
    save(output, 1)
    assert loaded(output) == 1
    assert len(list(output.glob("step-*"))) == 1


def test_what_a_killed_run_has_left_is_not_in_the_next_checkpoint(output):
    """It had more ranks, and came to the same step."""
    save(output, 1)
    (where,) = output.glob("step-*")
    save(output, 2)
    if WORLD.rank == 0:
        where.mkdir()
        (where / f"rank-{P:04d}.npz").write_bytes(b"of one more rank")
    WORLD.Barrier()
    save(output, 1)
    assert loaded(output) == 1


def test_a_checkpoint_of_another_setting_is_refused(output):
    save(output, 1)
    refused_everywhere("a run with seed = 1, here it is 2", lambda: loaded(output, setting={**AS_JSON, "seed": 2}))


@pytest.mark.parametrize("damage", ["cut", "empty", "changed", "gone", "no checkpoint", "latest"])
def test_a_damaged_checkpoint_is_refused(output, damage):
    """On all ranks, though it is the file of one."""
    save(output, 1)
    if WORLD.rank == 0:
        (path,) = output.glob(f"step-*/rank-{P - 1:04d}.npz")
        content = path.read_bytes()
        if damage == "cut":
            path.write_bytes(content[: len(content) // 2])
        elif damage == "empty":
            path.write_bytes(b"")
        elif damage == "changed":
            middle = content.index(np.float32(1).tobytes() * 3)
            path.write_bytes(content[:middle] + b"x" + content[middle + 1 :])
        elif damage == "gone":
            path.rename(path.with_name("rank-9999.npz"))
        elif damage == "no checkpoint":
            (output / "latest").unlink()
        else:
            (output / "latest").write_text("step-00000000.0")
    WORLD.Barrier()
    refused_everywhere("checkpoint: ", loaded, output)


def fails(*arguments, **options):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("rank", [0, P - 1])
def test_a_checkpoint_that_one_rank_cannot_write(output, rank, monkeypatch):
    save(output, 1)
    with monkeypatch.context() as patch:
        if WORLD.rank == rank:
            patch.setattr(np, "savez", fails)
        refused_everywhere(f"rank {rank}: .*No space left", save, output, 2)
    assert loaded(output) == 1
    save(output, 3)
    assert loaded(output) == 3
    assert len(list(output.glob("step-*"))) == 1


def test_the_checkpoint_before_survives_an_end_before_the_new_one_is_named(output, monkeypatch):
    save(output, 1)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "_replace", fails)
        refused_everywhere("rank 0: .*No space left", save, output, 2)
    assert loaded(output) == 1
    save(output, 2)
    assert loaded(output) == 2


def test_the_same_step_may_be_saved_twice(output, monkeypatch):
    """A run that begins anew in the folder of another: that one's checkpoint stays until the new one is named."""
    save(output, 1)
    with monkeypatch.context() as patch:
        if WORLD.rank == P - 1:
            patch.setattr(np, "savez", fails)
        refused_everywhere(f"rank {P - 1}: .*No space left", save, output, 1)
    assert loaded(output) == 1
    for _ in range(3):
        save(output, 1)
        assert loaded(output) == 1


def test_a_job_is_not_resumed_with_other_settings(comm, output):
    train(comm, "synchronous", output, epochs=1)
    for other in ({"seed": 2}, {"batch": 2 * P * BATCH}, {"optimizer": "sgd,rate=0.1"}):
        resumed = partial(train, comm, "synchronous", output, resume=True, **{"epochs": 1, **other})
        refused_everywhere(f"a run with {next(iter(other))} = ", resumed)
    assert train(comm, "synchronous", output, epochs=1, load=ONE_SLOW, resume=True).finished, "a load may change"
    shorter = partial(train, comm, "synchronous", output, resume=True, epochs=0.5)
    refused_everywhere(f"a run that has taken {STEPS_PER_EPOCH} steps, here are {STEPS_PER_EPOCH // 2}", shorter)


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


def test_settings_of_a_checkpoint_are_readable(output):
    save(output, 1)
    (path,) = output.glob(f"step-*/rank-{WORLD.rank:04d}.npz")
    with np.load(path, allow_pickle=False) as file:
        where = json.loads(str(file["where"]))
    assert where == {"number": 10 + WORLD.rank, "settled": 1, "setting": AS_JSON}
