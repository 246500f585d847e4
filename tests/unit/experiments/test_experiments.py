"""Experiments: what the catalogue says, and what is made of results."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

from pycollectives.commands.experiments import experiments
from pycollectives.experiments import report, runner
from pycollectives.experiments.benchmarks import MEASURED
from pycollectives.experiments.experiment import catalogue, find
from pycollectives.experiments.ideal import ideal_steps_per_s
from pycollectives.experiments.runner import _until, compare, require
from pycollectives.train.datasets import DATASETS
from pycollectives.train.job import Plan, Point
from pycollectives.train.models import MODELS
from pycollectives.train.optimizers import OPTIMIZERS
from pycollectives.train.registry import Choice
from pycollectives.train.settings import Settings
from pycollectives.train.synchronizers import METHODS

ROOT = Path(__file__).resolve().parents[3]

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
baseline = "a"
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


@pytest.mark.parametrize("experiment", catalogue(), ids=lambda one: one.name)
def test_experiments_that_claims_rest_on_have_three_seeds(experiment):
    assert experiment.seeds == (1, 2, 3)


@pytest.mark.parametrize("name", ["digits-latest", "lstm-latest"])
def test_eager_sgd_as_published_keeps_the_newest_result_and_makes_replicas_equal(name):
    """Solo and majority, at two rates, and solo without the periodic synchronization of models (section 7.2.2)."""
    jobs = [job.settings for job in find(name).jobs if job.settings.method.options.get("missed") == "latest"]
    plans = [Plan.of(settings, rank=0, ranks=8) for settings in jobs]
    equalized = {
        (settings.method.options["policy"], str(settings.optimizer), bool(plan.settle_every < plan.steps))
        for settings, plan in zip(jobs, plans, strict=True)
    }
    rates = {optimizer for _, optimizer, _ in equalized}
    assert len(rates) == 2
    assert {(policy, rate, True) for policy in ("solo", "majority") for rate in rates} < equalized
    assert {policy for policy, _, is_equalized in equalized if not is_equalized} == {"solo"}


@pytest.mark.nightly
def test_the_hyperplane_has_the_ideal_speedups_that_the_papers_load_allows():
    jobs = {job.name: job.with_seed(1) for job in find("hyperplane").jobs}
    of = {name: ideal_steps_per_s(settings, Plan.of(settings, rank=0, ranks=8)) for name, settings in jobs.items()}
    base = {delay: of[f"synchronous, {delay} ms"] for delay in (200, 300, 400)}
    assert [*base.values()] == pytest.approx([1 / 0.395, 1 / 0.495, 1 / 0.595])
    assert [of[f"solo, {delay} ms"] / base[delay] for delay in base] == pytest.approx([1.80, 2.13, 2.43], rel=0.04)
    assert of["quorum:4, 200 ms"] / base[200] == pytest.approx(1.75, rel=0.04)


def ideal(method, seconds, settle_every=None):
    plan = SimpleNamespace(steps=seconds.shape[1], settle_every=settle_every, seconds=seconds)
    return ideal_steps_per_s(Settings(method=Choice.parse(method)), plan)


def test_an_ideal_by_speed_waits_for_nobody():
    plan = SimpleNamespace(steps=50, settle_every=None, seconds=np.array([[0.1] * 50, [0.2] * 50]))
    assert ideal_steps_per_s(Settings(method=Choice.parse("ad-psgd"), by_speed=True), plan) == pytest.approx(7.5)


def test_an_ideal_of_a_rank_that_takes_no_time_is_unknown():
    plan = SimpleNamespace(steps=5, settle_every=None, seconds=np.array([[0.0] * 5, [0.2] * 5]))
    assert ideal_steps_per_s(Settings(method=Choice.parse("ad-psgd"), by_speed=True), plan) is None


def test_a_part_of_an_experiment(tmp_path):
    (tmp_path / "two.toml").write_text(MINIMAL)
    whole = find(str(tmp_path / "two.toml"))
    assert whole.part() == whole
    assert [job.name for job in whole.part(["b"]).jobs] == ["a", "b"], "with the baseline"
    assert [job.name for job in whole.part(["a"]).jobs] == ["a"]
    chain = find("hop-graphs")
    names = {job.name for job in chain.part(["staleness 5, one 4x slower"]).jobs}
    assert {job.baseline for job in chain.jobs if job.name in names} <= {*names, None}, "and theirs"
    part = whole.part(seeds="4, 5", ranks=3)
    assert (part.seeds, part.ranks, part.jobs) == ((4, 5), 3, whole.jobs)
    with pytest.raises(ValueError, match=r"only: expected part of a job's name \(a, b\); got 'c'"):
        whole.part(["c"])
    with pytest.raises(ValueError, match="seeds: expected numbers separated by commas, got '1,x'"):
        whole.part(seeds="1,x")


def test_show_has_the_settings_and_the_time():
    said = CliRunner().invoke(experiments, ["show", "hyperplane"])
    assert said.exit_code == 0, said.output
    assert "eager,policy=solo" in said.output
    assert re.search(r"At least \d+ minutes for all seeds", said.output)
    wrong = CliRunner().invoke(experiments, ["show", "odd"])
    assert wrong.exit_code == 1
    assert "expected one of digits" in wrong.output


def test_an_ideal_waits_for_the_last_rank_as_a_training_does():
    assert ideal("eager,policy=solo", np.array([[0.1] * 50, [0.2] * 50])) == pytest.approx(5)


@pytest.mark.parametrize(
    ("sync", "settle_every", "seconds"), [("bsp", None, 10), ("asp", None, 7.5), ("asp", 25, 10), ("ssp:3", None, 9.4)]
)
def test_an_ideal_of_a_server_waits_as_its_rules_say(sync, settle_every, seconds):
    """Two ranks, the one slow in the first half, the other in the second: SSP saves it 3 of its slow steps."""
    halves = np.array([[0.2] * 25 + [0.1] * 25, [0.1] * 25 + [0.2] * 25])
    assert ideal(f"parameter-server,sync={sync}", halves, settle_every) == pytest.approx(50 / seconds)


@pytest.mark.parametrize(
    ("mode", "seconds"), [("standard", 4.0), ("backup:1", 4.0), ("skip:10", 1.6), ("staleness:2", 4.0)]
)
def test_an_ideal_of_hop_waits_as_its_mode_says(mode, seconds):
    """One of four on a ring takes four times as long, and ends with four steps of its own if it may skip the others."""
    work = np.full((4, 10), 0.1)
    work[2] = 0.4
    assert ideal(f"hop,topology=ring,mode={mode}", work) == pytest.approx(10 / seconds)


def test_an_ideal_of_hop_computes_as_it_says():
    """In the serial graph a rank computes at its new weights: neighbors wait for its work, then for its update."""
    work = np.random.default_rng(1).uniform(0.05, 0.4, (8, 40))
    parallel, serial = (ideal(f"hop,topology=ring,computation={graph}", work) for graph in ("parallel", "serial"))
    assert serial < parallel
    assert ideal("hop,topology=ring", work) == parallel


def test_an_ideal_of_ad_psgd_waits_for_nobody():
    assert ideal("ad-psgd", np.array([[0.1, 0.3], [0.3, 0.2]])) == pytest.approx(2 / 0.5)


@pytest.mark.parametrize("name", ["elastic", "elastic-lookahead", "ringmaster", "servers"])
def test_every_server_of_the_catalogue_has_an_ideal(name):
    """Zero-cost communication: nobody is faster than the rank that works longest."""
    experiment = find(name)
    for job in experiment.jobs:
        settings = job.with_seed(1)
        plan = Plan.of(settings, rank=0, ranks=experiment.ranks)
        found = ideal_steps_per_s(settings, plan)
        assert 0 < found <= plan.steps / plan.seconds.sum(axis=1).max() * (1 + 1e-9)


@pytest.mark.parametrize(("settle_every", "seconds"), [(None, 7.5), (25, 10.0), (20, 9.5), (50, 7.5)])
def test_an_ideal_waits_wherever_replicas_are_made_equal(settle_every, seconds):
    """Two ranks, the one slow in the first half, the other in the second."""
    halves = np.array([[0.2] * 25 + [0.1] * 25, [0.1] * 25 + [0.2] * 25])
    assert ideal("eager,policy=solo", halves, settle_every) == pytest.approx(50 / seconds)


def test_a_method_without_a_model_has_no_ideal():
    assert ideal("ripples", np.ones((2, 3))) is None


def test_a_load_of_nothing_has_no_ideal():
    assert ideal("synchronous", np.zeros((2, 3))) is None


def test_a_speed_is_relative_to_the_baseline_of_the_same_seed():
    results = [
        {"job": job, "seed": seed, "baseline": baseline, "steps_per_s": speed * seed, "ideal_steps_per_s": ideal}
        for seed in (1, 2)
        for job, baseline, speed, ideal in (("a", None, 4.0, 5.0), ("b", "a", 6.0, 10.0), ("c", "a", 2.0, None))
    ]
    compare(results)
    assert [(result["speedup"], result["ideal_speedup"]) for result in results] == 2 * [(1, 1), (1.5, 2), (0.5, None)]


def test_of_the_time_to_a_target_there_is_no_ideal():
    results = [
        {"job": "a", "seed": 1, "baseline": None, "ideal_steps_per_s": 5.0, "time_to_target_s": 8.0},
        {"job": "b", "seed": 1, "baseline": "a", "ideal_steps_per_s": 6.0, "time_to_target_s": 2.0},
    ]
    compare(results)
    assert [(result["speedup"], result["ideal_speedup"]) for result in results] == [(1, None), (4, None)]


def test_a_result_of_what_a_job_was_before_is_not_its_own():
    job = find("digits").jobs[0]
    result = {"job": job.name, "baseline": job.baseline, "seed": 3}
    settings = json.loads(json.dumps(job.with_seed(3).as_json()))
    assert job.gave({**result, "settings": settings})
    assert job.gave({**result, "settings": {key: value for key, value in settings.items() if key != "output"}})
    assert not job.gave({**result, "settings": {**settings, "batch": 64}})
    assert not job.gave({**result, "settings": settings, "baseline": "other"})


def test_the_list_has_every_figure():
    said = CliRunner().invoke(experiments, ["list"], env={"COLUMNS": "300"}).output
    assert all(one.name in said for one in catalogue())
    lines = [re.split(r"  +", line.strip()) for line in said.splitlines()[-len(MEASURED) :]]
    assert lines == [[of.figure, str(of.ranks or "-"), of.command, of.title] for of in MEASURED]


def read(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return find(str(path))


def test_a_file_of_ones_own(tmp_path):
    experiment = read(tmp_path, MINIMAL)
    assert (experiment.name, experiment.seeds, experiment.target_loss) == ("mine", (1,), None)
    assert [(job.name, job.baseline, job.settings.method.name) for job in experiment.jobs] == [
        ("a", None, "synchronous"),
        ("b", "a", "eager"),
    ]


def test_the_file_that_the_documentation_shows(tmp_path):
    page = (ROOT / "docs" / "experiments.md").read_text()
    (shown,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    experiment = read(tmp_path, shown)
    assert [job.name for job in experiment.jobs] == ["synchronous", "solo"]
    assert experiment.seeds == (1, 2)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            ('baseline = "a"', 'baseline = "c"'),
            r"job 'b': baseline: expected the name of an earlier job \(a\), got 'c'",
        ),
        (('name = "b"', 'name = "a"'), "'a' appears twice"),
        (("epochs = 1", "epoch = 1"), "unknown setting 'epoch'"),
        (("ranks = 2", "rank = 2"), "rank"),
        (('title = "T"', ""), "title"),
        (("ranks = 2", "ranks = 2.5"), "ranks: expected a whole number >= 1, got 2.5"),
        (("ranks = 2", "ranks = 2\nranks_per_node = -1"), "ranks_per_node: expected a whole number >= 1, got -1"),
        (("ranks = 2", 'ranks = 2\ntarget_loss = "0.3"'), "target_loss: expected a number, got '0.3'"),
        (("ranks = 2", "ranks = 2\nseeds = []"), "seeds, jobs: expected at least one of each"),
    ],
)
def test_files_refused(tmp_path, change, text):
    with pytest.raises(ValueError, match=rf"mine\.toml: .*{text}"):
        read(tmp_path, MINIMAL.replace(*change))


@pytest.mark.parametrize(
    ("ranks", "change", "text"),
    [
        (3, ("", ""), "experiment mine: expected 2 ranks, got 3"),
        (2, ("eager,policy=solo", "eager,polcy=solo"), "job 'b': method 'eager': unknown option 'polcy'"),
        (2, ("epochs = 1", 'epochs = 1\nmodel = "mpl"'), "job 'a': model: expected one of .* got 'mpl'"),
        (2, ("epochs = 1", 'epochs = 1\nload = "evn"'), "job 'a': load: expected one of .* got 'evn'"),
    ],
)
def test_what_would_stop_a_later_job_is_found_before_the_first(tmp_path, ranks, change, text):
    with pytest.raises(ValueError, match=text):
        require(read(tmp_path, MINIMAL.replace(*change) if change[0] else MINIMAL), ranks)


@pytest.mark.parametrize("before", [None, ""])
def test_a_run_that_fails_leaves_files_as_they_were(tmp_path, monkeypatch, before):
    def fails(*_):
        raise ValueError("of the run")

    read(tmp_path, MINIMAL.replace("ranks = 2", "ranks = 1"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runner, "run", fails)
    results = tmp_path / "mine.json"
    if before is not None:
        results.write_text(before)
    done = CliRunner().invoke(experiments, ["run", "mine.toml"])
    assert done.exit_code == 1
    assert "Error: of the run" in done.output
    assert (results.read_text() if results.exists() else None) == before


def test_an_unknown_name_is_told_what_there_is():
    with pytest.raises(ValueError, match=r"expected one of digits, .*hyperplane.*got 'odd'"):
        find("odd")


def points(*losses):
    return [Point(i + 1, 10.0 * (i + 1), loss, None) for i, loss in enumerate(losses)]


@pytest.mark.parametrize(
    ("losses", "seconds"), [((4, 2, 1), 25.0), ((1, 0.5), 10.0), ((1.5, 1.5), 10.0), ((4, 3, 2), None)]
)
def test_the_time_to_a_loss_is_between_two_points(losses, seconds):
    assert _until(1.5, points(*losses), "elapsed_s") == seconds
    assert _until(1.5, points(*losses), "epoch") == (seconds if seconds is None else seconds / 10)


def results():
    def one(job, seed, accuracy, speedup):
        points = ((0.5, 1, 0.25), (1, 2, 0.5), (1, 3, 1))  # the last one after all replicas were made equal
        curve = [
            {"epoch": epoch, "elapsed_s": seconds, "loss": 1.0, "accuracy": share * accuracy}
            for epoch, seconds, share in points
        ]
        figures = {"steps_per_s": 2.0, "batch": 16, "active": 1.5}
        figures |= {"speedup": speedup, "ideal_speedup": None, "paper_speedup": 1.25}
        figures["ideal_steps_per_s"] = {"a": 2.5}.get(job)
        return {"job": job, "seed": seed, "curve": curve, **figures}

    runs = [one("a", 1, 0.5, 1.0), one("b", 1, 0.5, 2.0), one("a", 2, 0.5, 1.0), one("b", 2, 0.7, 3.0)]
    return {"title": "T", "figure": "F", "results": runs}


def test_a_row_has_the_mean_over_seeds_and_what_nobody_knows_is_left_out():
    assert report.table(results()) == (
        [
            *("method", "examples/s", "of the ideal", "speedup", "paper", "validation loss", "accuracy"),
            *("of the replica", "active"),
        ],
        [
            ["a", "32", "80 %", "1.00x", "1.25x", "1", "50.0 % (50.0 to 50.0)", "25.0 %", "1.5"],
            ["b", "32", "-", "2.50x", "1.25x", "1", "60.0 % (50.0 to 70.0)", "30.0 %", "1.5"],
        ],
    )


def test_a_paper_without_a_number_has_words(tmp_path):
    pytest.importorskip("matplotlib")
    found = results()
    for result in found["results"]:
        result["paper_speedup"] = {"a": None, "b": "slower"}[result["job"]]
    head, rows = report.table(found)
    assert [row[head.index("paper")] for row in rows] == ["-", "slower"]
    report.plot(found, tmp_path / "figure.png")


def test_baselines_are_named_if_there_are_several():
    found = results()
    for result in found["results"]:
        result["baseline"] = {"b": "a"}.get(result["job"])
    assert "baseline" not in report.table(found)[0]
    found["results"].append({**found["results"][1], "job": "c", "baseline": "b"})
    head, rows = report.table(found)
    assert [row[head.index("baseline")] for row in rows] == ["-", "a", "b"]


def test_a_target_that_was_not_reached_is_said():
    found = results()
    for result in found["results"]:
        result["time_to_target_s"] = None if (result["job"], result["seed"]) == ("b", 2) else 4.0
    head, rows = report.table(found)
    assert [row[head.index("time to target")] for row in rows] == ["4.0 s", "not reached"]


def test_a_figure_of_many_jobs_has_a_panel_for_each_load(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    saved = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, path, dpi: saved.append(figure))
    monkeypatch.setattr(report, "MOST_CURVES", 3)
    jobs = [{"job": f"{method}, {load}", "time_to_target_s": 2.0} for method in "ab" for load in ("equal", "slow")]
    jobs[-1]["time_to_target_s"] = None  # not reached
    report.plot({"title": "T", "figure": "F", "target_loss": 0.3, "results": jobs}, tmp_path / "figure.png")
    panels = saved[0].axes
    assert [panel.get_title() for panel in panels] == ["equal", "slow"]
    assert [len(panel.patches) for panel in panels] == [2, 1]


def test_a_figure_is_drawn_from_what_json_keeps(tmp_path):
    pytest.importorskip("matplotlib")
    report.plot(json.loads(json.dumps(results())), tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
