"""`mpirun -n 2 python -m pycollectives experiments run`, with an experiment of seconds."""

import json
import sys

import pytest
from launcher import environment, launcher, run

TINY = """
title = "T"
figure = "F"
scale = "S"
ranks = 2
target_loss = 1e9

[settings]
model = "hyperplane"
data = "hyperplane,dimensions=16,points=192,validation=32"
optimizer = "sgd,rate=0.01"
batch = 24
epochs = 2
load = "one-late,work_ms=10,skew_ms=10"

[[jobs]]
name = "synchronous"

[[jobs]]
name = "solo"
baseline = "synchronous"
paper = 1.5
method = "eager,policy=solo,missed=sum"
"""


def experiment(*arguments, folders):
    """Run tiny.toml on two ranks, each in a folder of its own."""
    programs = []
    for folder in folders:
        programs += [":", "-n", "1", "-wdir", str(folder), sys.executable, "-m", "pycollectives", "experiments", "run"]
        programs += ["tiny.toml", *arguments]
    outcome = run([*launcher(), *programs[1:]], limit=60, env=environment())
    assert not outcome.hung
    return outcome


@pytest.mark.parametrize("target", [True, False])
def test_results_are_kept_with_their_speedups(tmp_path, target):
    (tmp_path / "tiny.toml").write_text(TINY if target else TINY.replace("target_loss = 1e9", ""))
    outcome = experiment(folders=[tmp_path, tmp_path])
    assert outcome.status == 0
    found = json.loads((tmp_path / "tiny.json").read_text())
    synchronous, solo = found["results"]
    assert (synchronous["job"], solo["job"], solo["baseline"], solo["paper_speedup"]) == (
        "synchronous",
        "solo",
        "synchronous",
        1.5,
    )
    if target:
        assert solo["speedup"] == synchronous["time_to_target_s"] / solo["time_to_target_s"]
    else:
        assert solo["speedup"] == solo["steps_per_s"] / synchronous["steps_per_s"]
    assert (synchronous["speedup"], synchronous["ideal_speedup"]) == (1, None if target else 1)
    assert synchronous["ideal_steps_per_s"] == pytest.approx(50)  # one of two is always late
    assert 50 < solo["ideal_steps_per_s"] <= 100
    assert "solo" in outcome.out


def test_a_file_that_cannot_be_written_is_said_before_anything_is_run(tmp_path):
    (tmp_path / "tiny.toml").write_text(TINY)
    outcome = experiment("--output", "nowhere/x.json", folders=[tmp_path, tmp_path])
    assert outcome.status == 1
    assert "nowhere/x.json" in outcome.err
    assert "steps/s" not in outcome.err


def test_a_rank_that_cannot_go_on_ends_the_experiment(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
        (folder / "tiny.toml").write_text(TINY.replace("one-late,work_ms=10,skew_ms=10", "trace,file=t.csv"))
    (here / "t.csv").write_text("0.01,0.01\n")
    outcome = experiment(folders=[here, there])
    assert outcome.status == 1
    assert "t.csv" in outcome.err
