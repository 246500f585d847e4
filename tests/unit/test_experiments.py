"""Experiments: what the catalogue says, and what is made of results."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from pycollectives.experiments import report
from pycollectives.experiments.experiment import catalogue, find
from pycollectives.experiments.ideal import ideal_speedup
from pycollectives.experiments.runner import _time_to
from pycollectives.train.datasets import DATASETS
from pycollectives.train.job import Plan, Point
from pycollectives.train.models import MODELS
from pycollectives.train.optimizers import OPTIMIZERS
from pycollectives.train.registry import Choice
from pycollectives.train.synchronizers import METHODS

MINIMAL = """
title = "T"
figure = "F"
scale = "S"
ranks = 2
[settings]
epochs = 1
[[jobs]]
name = "a"
[[jobs]]
name = "b"
beside = "a"
method = "eager,policy=solo"
"""


@pytest.mark.parametrize("experiment", catalogue(), ids=lambda one: one.name)
def test_what_the_catalogue_names_is_there(experiment):
    for job in experiment.jobs:
        settings = job.with_seed(2)
        assert settings.seed == 2
        for registry, choice in (
            (DATASETS, settings.data),
            (OPTIMIZERS, settings.optimizer),
            (METHODS, settings.method),
        ):
            registry.find(choice)
        assert settings.model.name in MODELS.names
        assert settings.batch % experiment.ranks == 0


def test_the_hyperplane_has_the_ideal_speedups_that_the_papers_load_allows():
    jobs = {job.name: job.with_seed(1) for job in find("hyperplane").jobs}
    of = {
        name: ideal_speedup(settings.method, Plan.of(settings, rank=0, ranks=8).seconds, 1)
        for name, settings in jobs.items()
    }
    assert of["synchronous, 300 ms"] == 1
    assert [of[f"solo, {delay} ms"] for delay in (200, 300, 400)] == pytest.approx([1.80, 2.13, 2.43], rel=0.02)
    assert of["quorum:4, 200 ms"] == pytest.approx(1.75, rel=0.02)


def test_a_method_without_a_model_has_no_ideal():
    assert ideal_speedup(Choice("ripples"), np.ones((2, 3)), 1) is None


def read(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return find(str(path))


def test_a_file_of_ones_own(tmp_path):
    experiment = read(tmp_path, MINIMAL)
    assert (experiment.name, experiment.seeds, experiment.target_loss) == ("mine", (1,), None)
    assert [(job.name, job.beside, job.settings.method.name) for job in experiment.jobs] == [
        ("a", None, "synchronous"),
        ("b", "a", "eager"),
    ]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (('beside = "a"', 'beside = "c"'), "'b' is there twice, or compared"),
        (('name = "b"', 'name = "a"'), "'a' is there twice"),
        (("epochs = 1", "epoch = 1"), "unknown setting 'epoch'"),
        (("ranks = 2", "rank = 2"), "rank"),
        (('title = "T"', ""), "title"),
    ],
)
def test_files_refused(tmp_path, change, text):
    with pytest.raises(ValueError, match=rf"mine\.toml: .*{text}"):
        read(tmp_path, MINIMAL.replace(*change))


def test_an_unknown_name_is_told_what_there_is():
    with pytest.raises(ValueError, match=r"expected one of digits, .*hyperplane.*got 'odd'"):
        find("odd")


def points(*losses):
    return SimpleNamespace(curve=[Point(i + 1, 10.0 * (i + 1), loss, None) for i, loss in enumerate(losses)])


@pytest.mark.parametrize(
    ("losses", "seconds"), [((4, 2, 1), 25.0), ((1, 0.5), 10.0), ((1.5, 1.5), 10.0), ((4, 3, 2), None)]
)
def test_the_time_to_a_loss_is_between_two_points(losses, seconds):
    assert _time_to(1.5, points(*losses)) == seconds


def results():
    def one(job, seed, accuracy, speedup):
        curve = [{"epoch": epoch, "elapsed_s": epoch, "loss": 1.0, "accuracy": accuracy} for epoch in (1, 2)]
        figures = {"steps_per_s": 2.0, "active": 1.5, "speedup": speedup, "ideal_speedup": None, "paper_speedup": 1.25}
        return {"job": job, "seed": seed, "curve": curve, **figures}

    runs = [one("a", 1, 0.5, 1.0), one("b", 1, 0.5, 2.0), one("a", 2, 0.5, 1.0), one("b", 2, 0.7, 3.0)]
    return {"title": "T", "figure": "F", "results": runs}


def test_a_row_has_the_mean_over_seeds():
    assert report.rows(results()) == [
        ["a", "2.00", "1.00x", "-", "1.25x", "1", "50.0 % (50.0 to 50.0)", "1.5", "-"],
        ["b", "2.00", "2.50x", "-", "1.25x", "1", "60.0 % (50.0 to 70.0)", "1.5", "-"],
    ]


def test_a_figure_is_drawn_from_what_json_keeps(tmp_path):
    pytest.importorskip("matplotlib")
    report.plot(json.loads(json.dumps(results())), tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
