"""The parts of a training that one rank has alone: choices, settings, update rules, schedules, metrics."""

import contextlib
import json

import numpy as np
import pytest

from pycollectives.train import metrics
from pycollectives.train.curve import Curve, Point
from pycollectives.train.datasets import DATASETS
from pycollectives.train.loop import Training
from pycollectives.train.models import MODELS
from pycollectives.train.models.base import Model, Score
from pycollectives.train.optimizers import OPTIMIZERS
from pycollectives.train.registry import Choice, Registry
from pycollectives.train.replica import Step
from pycollectives.train.schedules import SCHEDULES
from pycollectives.train.settings import Settings, read_toml
from pycollectives.train.summary import Summary, report
from pycollectives.train.synchronizers import METHODS

# --- Choices and settings


@pytest.mark.parametrize("wrong", ["", ",a=1", "sgd,rate", "sgd,=1", 3, {"rate": 1}, {"name": 1}])
def test_what_is_no_choice_is_refused(wrong):
    with pytest.raises(ValueError, match="expected"):
        Choice.parse(wrong)


def test_a_choice_in_toml_is_one_of_the_command_line():
    said = Choice.parse("one-late,skew_ms=300,late=2,flag=true")
    assert said == Choice.parse({"name": "one-late", "skew_ms": 300, "late": 2, "flag": True})
    assert said.options == {"skew": 0.3, "late": 2, "flag": True}
    assert Choice.parse(str(said)).options["skew"] == 0.3


@pytest.mark.parametrize("registry", [METHODS, MODELS, DATASETS, OPTIMIZERS, SCHEDULES], ids=lambda one: one.kind)
def test_unknown_names_and_options_are_refused(registry):
    with pytest.raises(ValueError, match=rf"{registry.kind}: expected one of .*{registry.names[0]}.*'odd'"):
        registry.find(Choice("odd"))
    with pytest.raises(ValueError, match=rf"'{registry.names[0]}': unknown option 'odd'; it"):
        registry.find(Choice(registry.names[0], {"odd": 1}))


def test_defaults_go_to_those_that_take_them():
    registry = Registry("thing", {"a": f"{__name__}:_takes", "b": f"{__name__}:_takes_none"})
    assert registry.make(Choice("a"), seed=7) == 7
    assert registry.make(Choice("a", {"seed": 2}), seed=7) == 2
    assert registry.make(Choice("b"), seed=7) is None


@pytest.mark.parametrize(
    ("registry", "said", "text"),
    [
        (METHODS, "m-synchronous", "method 'm-synchronous': needs the option 'm'"),
        (METHODS, "m-synchronous,m=all", "method 'm-synchronous': m: expected a whole number, got 'all'"),
        (SCHEDULES, "cosine", "schedule 'cosine': needs the option 'epochs'"),
        (OPTIMIZERS, "sgd,rate=high", "optimizer 'sgd': rate: expected a number, got 'high'"),
        (OPTIMIZERS, "sgd,rate=true", "optimizer 'sgd': rate: expected a number, got True"),
        (OPTIMIZERS, "sgd,momentum=nan", "optimizer 'sgd': momentum: expected a number, got nan"),
        (DATASETS, "cifar10,folder=2024", r"data .*'cifar10': folder: expected a word .*, got 2024"),
        (MODELS, "mlp,hidden=0", "model 'mlp': hidden: expected at least 1, got 0"),
        (DATASETS, "hyperplane,dimensions=-1", "data 'hyperplane': dimensions: expected at least 1, got -1"),
        (MODELS, "mlp,hidden=2.5", r"model 'mlp': hidden: expected a whole number, got 2\.5"),
    ],
)
def test_options_are_checked_before_anything_is_made(registry, said, text):
    with pytest.raises(ValueError, match=text):
        registry.make(Choice.parse(said))


@pytest.mark.parametrize(
    ("model", "data", "text"),
    [
        ("hyperplane", "digits", "model 'hyperplane': expected data of points and their values"),
        ("mlp", "hyperplane,dimensions=8,points=64,validation=8", "expected data with classes"),
        ("mlp", "sequences,examples=8,validation=8", "model 'mlp': expected data of inputs and labels"),
    ],
)
def test_models_are_not_made_for_data_of_another_kind(model, data, text):
    examples = DATASETS.make(Choice.parse(data))
    with pytest.raises(ValueError, match=text):
        MODELS.make(Choice(model), examples)


def _takes(*, seed):
    return seed


def _takes_none():
    return None


def test_the_command_line_goes_above_the_file(tmp_path):
    path = tmp_path / "job.toml"
    path.write_text('method = "eager,policy=solo"\nepochs = 3\nseed = 5\n[load]\nname = "one-late"\nskew_ms = 200\n')
    settings = Settings.of(read_toml(path), {"seed": 9})
    assert (settings.seed, settings.epochs, settings.load.options) == (9, 3, {"skew": 0.2})
    assert settings.method == Choice("eager", {"policy": "solo"})
    json.dumps(settings.as_json())


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ({"odd": 1}, "unknown setting 'odd'"),
        ({"batch": "8"}, "batch: expected a whole number"),
        ({"batch": None, "seed": None}, "seed: expected a whole number"),
        ({"batch": 0}, "batch: expected at least 1"),
        ({"epochs": 0}, "epochs: expected a number > 0"),
        ({"epochs": float("nan")}, "epochs: expected a number > 0"),
        ({"epochs": 1e308}, r"epochs: expected a number > 0 and at most 1e\+09, got 1e\+308"),
        ({"epochs": "many"}, "epochs: expected a number"),
        ({"settle_epochs": -1}, "settle_epochs"),
        ({"seed": -1}, "seed"),
        ({"load": 3}, "load: expected"),
    ],
)
def test_wrong_settings_are_named(said, text):
    with pytest.raises(ValueError, match=text):
        Settings.of(said)


def test_a_file_that_is_no_toml_is_named(tmp_path):
    path = tmp_path / "job.toml"
    path.write_text("epochs = = 3")
    with pytest.raises(ValueError, match=r"job\.toml"):
        read_toml(path)


# --- Update rules and schedules


def made(text, weights, schedule=lambda number: 1.0):
    return OPTIMIZERS.make(Choice.parse(text), weights, schedule)


@pytest.mark.parametrize(
    ("text", "torch_name", "options"),
    [
        ("sgd,rate=0.1", "SGD", {"lr": 0.1}),
        ("sgd,rate=0.1,momentum=0.9,weight_decay=0.01", "SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
        (
            "sgd,rate=0.1,momentum=0.9,nesterov=true,weight_decay=0.01",
            "SGD",
            {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
        ),
        ("adam,rate=0.01", "Adam", {"lr": 0.01}),
        ("adam,rate=0.01,weight_decay=0.1", "AdamW", {"lr": 0.01, "weight_decay": 0.1}),
    ],
)
def test_update_rules_are_those_of_pytorch(text, torch_name, options):
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(0)
    weights = random.standard_normal(20).astype(np.float32)
    theirs = torch.nn.Parameter(torch.tensor(weights))
    optimizer, reference = made(text, weights), getattr(torch.optim, torch_name)([theirs], **options)
    for step in range(20):
        gradient = random.standard_normal(20).astype(np.float32)
        theirs.grad = torch.tensor(gradient)
        reference.step()
        optimizer.update(weights, gradient, step)
    np.testing.assert_allclose(weights, theirs.detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("text", ["sgd,momentum=0.5", "adam"])
def test_an_update_rule_goes_on_from_its_state(text):
    gradients = np.random.default_rng(0).standard_normal((6, 5)).astype(np.float32)
    weights = np.ones(5, np.float32)
    optimizer = made(text, weights)
    for step in range(3):
        optimizer.update(weights, gradients[step], step)
    copy = weights.copy()
    other = made(text, copy)
    other.load_state({name: array.copy() for name, array in optimizer.state().items()})
    for step in range(3, 6):
        optimizer.update(weights, gradients[step], step)
        other.update(copy, gradients[step], step)
    np.testing.assert_array_equal(weights, copy)


def test_the_rate_follows_the_schedule():
    weights = np.zeros(1, np.float32)
    optimizer = made("sgd,rate=0.5", weights, schedule=lambda number: number)
    for number in (0, 1, 2):
        optimizer.update(weights, np.ones(1, np.float32), number)
    assert weights[0] == -1.5


@pytest.mark.parametrize(
    ("text", "epochs", "factors"),
    [
        ("constant", [0, 99], [1, 1]),
        ("milestones,at=80:120", [0, 79.9, 80, 120.5], [1, 1, 0.1, 0.01]),
        ("milestones,at=2,factor=0.5", [1, 2], [1, 0.5]),
        ("warmup,epochs=4,begin=0.2", [0, 2, 4, 9], [0.2, 0.6, 1, 1]),
        ("cosine,epochs=10", [0, 5, 10, 12], [1, 0.5, 0, 0]),
    ],
)
def test_schedules(text, epochs, factors):
    schedule = SCHEDULES.make(Choice.parse(text))
    assert [schedule(epoch) for epoch in epochs] == pytest.approx(factors)


@pytest.mark.parametrize("text", ["milestones,at=x", "warmup,epochs=0", "cosine,epochs=-1"])
def test_schedules_refused(text):
    with pytest.raises(ValueError, match="expected epochs"):
        SCHEDULES.make(Choice.parse(text))


# --- Results


class OneWeight(Model):
    """Its loss is its weight; beside it, it keeps the same in its state."""

    def __init__(self):
        self.weights, self.gradient = np.zeros(1, np.float32), np.zeros(1, np.float32)
        self.set(0)

    def set(self, value):
        self.weights[:] = value
        self.kept = np.array(float(value))

    def forward(self, *batch):
        raise NotImplementedError

    def backward(self):
        raise NotImplementedError

    def state(self):
        return {"kept": self.kept.copy()}

    def load_state(self, state):
        self.kept = state["kept"]

    def evaluate(self, *examples):
        return Score(float(self.weights[0]), float(self.kept))


def trained(folder, first, last, *, steps=6, ends=True, stopped=lambda: False, begin=0.0):
    """The curve of a run that takes these steps, each a second, of an epoch each two; the weight is the step."""
    model, training = OneWeight(), Training(steps, number=first)
    with contextlib.closing(Curve(folder, model, 2, lambda: begin + training.number)) as curve:
        curve.go_on(training)
        while training.number < last:
            training.number += 1
            model.set(training.number)
            curve(Step(training.number - 1, 0.0, 0.0, 0.0, 1, False, 0))
        if ends:
            curve.end(steps, 99.0)
            curve.score((), stopped)
        return curve.points


EPOCHS = [Point(1, 2, 2, 2), Point(2, 4, 4, 4), Point(3, 6, 6, 6)]


@pytest.mark.parametrize("kept", [True, False])
def test_a_curve_has_the_ends_of_epochs_and_the_end(tmp_path, kept):
    folder = tmp_path / "curve" if kept else None
    assert trained(folder, 0, 6) == (*EPOCHS, Point(3, 99, 6, 6))
    assert [path.name for path in tmp_path.glob("curve/*")] == ["points.json"] * kept


def test_a_curve_goes_on(tmp_path):
    """From a checkpoint after 3 steps, by a run that was killed after 5; of that one the second epoch is forgotten."""
    assert trained(tmp_path, 0, 5, ends=False) == ()
    assert sorted(path.name for path in tmp_path.glob("*.npz")) == ["00000002.npz", "00000004.npz"]
    later = [Point(2, 14, 4, 4), Point(3, 16, 6, 6), Point(3, 99, 6, 6)]
    assert trained(tmp_path, 3, 6, begin=10) == (EPOCHS[0], *later)
    assert trained(tmp_path, 6, 6, begin=50) == (EPOCHS[0], *later), "what is finished stays as it is"
    assert trained(tmp_path, 6, 7, steps=7) == (EPOCHS[0], *later[:2], Point(3.5, 99, 7, 7)), "another end"
    assert trained(tmp_path, 0, 5, ends=False) == (), "begun anew, and killed"
    assert trained(tmp_path, 0, 2, steps=2) == (EPOCHS[0], Point(1, 99, 2, 2)), "begun anew"


def test_scoring_is_stopped_and_goes_on(tmp_path):
    answers = iter([False, False, True])
    assert trained(tmp_path, 0, 6, stopped=lambda: next(answers)) == tuple(EPOCHS[:2])
    assert trained(tmp_path, 6, 6) == (*EPOCHS, Point(3, 99, 6, 6))


def test_a_replica_that_was_being_written_is_none(tmp_path):
    trained(tmp_path, 0, 4, ends=False)
    (tmp_path / "unfinished.npz").write_bytes(b"PK")
    assert trained(tmp_path, 4, 6)[:2] == tuple(EPOCHS[:2])


def test_points_that_are_not_finite_are_null_and_come_back(tmp_path):
    path = tmp_path / "points.json"
    path.write_text('{"00000002": {"epoch": 1, "elapsed_s": 2, "loss": null, "accuracy": null}}')
    (point, *_) = trained(tmp_path, 2, 6)
    assert (np.isnan(point.loss), point.accuracy) == (True, None)
    assert json.loads(path.read_text(), parse_constant=pytest.fail)["00000002"]["loss"] is None


def summary(**changed):
    figures = {
        "finished": True,
        "device": "cpu",
        "ranks": 2,
        "lost": (),
        "batch": 8,
        "steps": 4,
        "epochs": 2.0,
        "elapsed_s": 1.0,
        "steps_per_s": 4.0,
    }
    figures |= {
        "wait_fraction": 0.25,
        "active": 2.0,
        "late": 0.5,
        "missed": 0.0,
        "skipped": 0.125,
        "not_finite": 0,
        "is_same_on_all_ranks": True,
    }
    return Summary(**{**figures, "curve": (Point(2, 1, 0.5, 0.75),), "mean_curve": (), **changed})


def reported(capsys, tmp_path, **changed):
    """The keys of summary.json, and what is printed: rows by their names, and errors."""
    report(Settings(output=tmp_path), summary(**changed))
    out, err = capsys.readouterr()
    rows = dict(line.strip().split("  ", 1) for line in out.splitlines())
    written = json.loads((tmp_path / "summary.json").read_text(), parse_constant=pytest.fail)
    return written, {name: value.strip() for name, value in rows.items()}, err


def test_a_summary(capsys, tmp_path):
    written, rows, err = reported(capsys, tmp_path)
    assert written["curve"] == [{"epoch": 2, "elapsed_s": 1, "loss": 0.5, "accuracy": 0.75}]
    assert written["settings"]["method"] == {"name": "synchronous", "options": {}}
    assert (rows["waiting"], rows["validation loss"]) == ("25.0 % of the time", "0.5")
    assert (rows["validation accuracy"], err) == ("75.00 %", "")
    assert (rows["skipped"], written["skipped"]) == ("12.5 % of the steps", 0.125)


def test_the_summary_of_a_run_that_was_stopped(capsys, tmp_path):
    _, rows, _ = reported(capsys, tmp_path, finished=False, epochs=0.5, curve=())
    assert (rows["state"], rows["epochs"]) == ("stopped, to be resumed", "0.5")
    assert rows["validation loss"] == "not scored yet"
    report(Settings(), summary(finished=False, curve=()))
    assert "to be resumed" not in capsys.readouterr().out, "there is no checkpoint"


def test_ranks_that_have_died_are_reported(capsys, tmp_path):
    written, rows, _ = reported(capsys, tmp_path, ranks=3, lost=(0, 2, 3))
    assert written["lost"] == [0, 2, 3]
    assert rows["lost"] == "ranks 0, 2-3"
    assert rows["batch"] == "8 examples, 2.7 per rank"


def test_what_is_not_measured_is_not_shown(capsys, tmp_path):
    written, rows, _ = reported(capsys, tmp_path, wait_fraction=None, steps_per_s=float("nan"))
    assert (written["wait_fraction"], written["steps_per_s"], rows["waiting"]) == (None, None, "-")


def test_a_run_whose_loss_was_not_finite_says_so(capsys, tmp_path):
    written, _, err = reported(capsys, tmp_path, not_finite=3, curve=(Point(2, 1, float("nan"), 0.1),))
    assert (written["curve"][0]["loss"], written["not_finite"]) == (None, 3)
    assert err.count("\n") == 1
    assert "the loss was not finite in 3 steps" in err


# --- Metrics


def test_metrics_of_a_resumed_run_go_on_from_its_step(tmp_path):
    path = tmp_path / "deep" / "metrics.jsonl"
    for first, last in ((0, 5), (3, 6)):
        written = metrics.Metrics(path, first, lambda first=first: first + 0.5)
        for number in range(first, last):
            written(Step(number, 0.5, 0.1, 0.2, 3, False, first))
        written.close()
    lines = metrics.read(path)
    assert [(line["number"], line["missed"]) for line in lines] == [(0, 0), (1, 0), (2, 0), (3, 3), (4, 3), (5, 3)]
    assert [line["elapsed_s"] for line in lines] == [0.5] * 3 + [3.5] * 3


def test_kept_lines_never_leave_the_file(tmp_path):
    """A run that is killed before it writes anything has lost none of them."""
    path = tmp_path / "metrics.jsonl"
    lines = [f'{{"number": {number}, "loss": null}}\n' for number in range(5)]
    for cut in ('{"numb', '{"number": 5}'):
        path.write_text("".join(lines) + cut)
        metrics.Metrics(path, 9, metrics.Clock())
        assert path.read_text() == "".join(lines), "the cut one is not gone on with"
    metrics.Metrics(path, 3, metrics.Clock())
    assert path.read_text() == "".join(lines[:3])
    path.write_text("".join([*lines[:2], "\0\0\n", *lines[2:]]))
    metrics.Metrics(path, 4, metrics.Clock())
    assert path.read_text() == "".join(lines[:2]), "a damaged one ends the file"


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), -float("inf")])
def test_a_loss_that_is_not_finite_is_null(tmp_path, loss):
    path = tmp_path / "metrics.jsonl"
    written = metrics.Metrics(path, 0, metrics.Clock())
    written(Step(0, loss, 0.1, 0.2, 3, False, 1))
    written.close()

    def refuse(name):
        raise ValueError(name)

    line = json.loads(path.read_text(), parse_constant=refuse)
    assert (line["number"], line["loss"], line["compute_s"]) == (0, None, 0.1)


def test_a_line_that_was_cut_is_left_out(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"number": 0}\n{"numb')
    assert metrics.read(path) == [{"number": 0}]
