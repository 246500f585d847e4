"""`mpirun -n P python -m pycollectives train` and its settings: files, what is wrong, ranks with different ones."""

from __future__ import annotations

import os
import sys

import pytest
from launcher import environment, launcher, run
from train_command import OF_ONE_RANK, RANKS, ROOT, SMALL, command, summary_of, told, train
from wrong_use import outcomes_of_wrong_use

from pycollectives.train import metrics


def test_a_configuration_in_toml(tmp_path):
    (tmp_path / "job.toml").write_text(
        'batch = 24\nepochs = 99\noutput = "odd"\n'
        '[method]\nname = "eager"\npolicy = "quorum:2"\n[model]\nname = "hyperplane"\n'
        '[data]\nname = "hyperplane"\ndimensions = 16\npoints = 192\nvalidation = 32\n'
        '[load]\nname = "one-late"\nwork_ms = 1\nskew_ms = 2\n'
    )
    said = ["--config", tmp_path / "job.toml", "--epochs", "2", "--output", tmp_path / "run"]
    outcome = train(*said, "--ranks", RANKS, "--ranks-per-node", 2)
    assert outcome.status == 0
    assert "emulated by sleeping" in outcome.out
    found = summary_of(tmp_path / "run")
    assert (found["finished"], found["ranks"], found["steps"]) == (True, RANKS, 16)
    assert found["settings"]["method"] == {"name": "eager", "options": {"policy": "quorum:2"}}
    assert found["settings"]["load"]["options"] == {"work": 0.001, "skew": 0.002}
    assert len(metrics.read(tmp_path / "run" / "metrics-rank-0002.jsonl")) == 16


WRONG = [
    (["odd"], "method: expected one of synchronous, eager"),
    (["synchronous,odd=1"], "method 'synchronous': unknown option 'odd'; it has no options"),
    (["synchronous,odd"], "method: expected NAME or NAME,KEY=VALUE,...; got 'synchronous,odd'"),
    (["m-synchronous"], "method 'm-synchronous': needs the option 'm'"),
    (["m-synchronous,m=9"], "expected 1 <= m <="),
    (["eager,policy=odd"], "policy 'odd': expected solo, majority"),
    (["synchronous", "--data", "odd"], "data: expected one of hyperplane, digits"),
    (["synchronous", "--model", "mlp"], "expected data with classes"),
    (["synchronous", "--load", "trace,file=nowhere.csv"], "nowhere.csv"),
    (["synchronous", "--batch", "25000"], "batch: expected a multiple of"),
    (["synchronous", "--epochs", "0"], "epochs: expected a number > 0"),
    (["synchronous", "--resume"], "--resume needs --output"),
    (["synchronous", "--ranks", "2"], "expected 2 ranks, got"),
    (["synchronous", "--config", "nowhere.toml"], "'nowhere.toml' does not exist"),
    (["synchronous", "--odd"], "--odd"),
    (["synchronous", "--output", ""], "output: expected a folder, got ''"),
    (["synchronous", "--epochs", "inf"], "epochs: expected a number > 0 and at most 1e+09, got inf"),
    (["synchronous", "--settle-epochs", "inf"], "settle_epochs: expected a number > 0, got inf"),
    (["synchronous", "--data", "hyperplane,dimensions=99999999999999"], "Unable to allocate"),
    (["synchronous", "--optimizer", "sgd,rate=-1"], "optimizer: rate: expected a number > 0, got -1"),
    (["synchronous", "--optimizer", "sgd,nesterov=true"], "optimizer: nesterov: expected a momentum > 0, got 0"),
    (["synchronous", "--optimizer", "adam,rate=0"], "optimizer: rate: expected a number > 0, got 0"),
    (["synchronous", "--device", "gpu"], "device: expected cpu, cuda or cuda:N, got 'gpu'"),
    (["synchronous", "--device", "cuda"], "device cuda: model 'hyperplane' computes with NumPy, on the host: choose"),
]


IN_MANY_PLACES = [WRONG[number] for number in (0, 2, 4, 8, 11, 12, 14, -1)]
"""One for each place where something is found out."""


@pytest.mark.parametrize(("ranks", "cases"), [(1, WRONG), (RANKS, IN_MANY_PLACES)], ids=["one rank", "ranks"])
def test_what_is_wrong_is_said_once(ranks, cases):
    lists = [["train", method, *SMALL, *rest] for (method, *rest), _ in cases]
    outcomes = outcomes_of_wrong_use(ranks, "pycollectives", lists)
    for outcome, (_, text) in zip(outcomes, cases, strict=True):
        told(outcome, text)


def test_a_batch_that_ranks_cannot_share():
    told(train("synchronous", *SMALL, "--batch", "25"), "batch: expected a multiple of 3, the number of ranks")


def test_a_file_that_is_no_toml(tmp_path):
    (tmp_path / "job.toml").write_text("epochs = = 3")
    told(train("--config", tmp_path / "job.toml"), "job.toml: ")


def test_a_key_that_no_file_has(tmp_path):
    (tmp_path / "job.toml").write_text("ranks = 3")
    told(train("--config", tmp_path / "job.toml", ranks=1), "job.toml: unknown setting 'ranks'")


def test_help_names_methods_and_defaults(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "from pycollectives.train.synchronizers import METHODS\nMETHODS.add('of-a-test', 'nowhere:Nothing')\n"
    )
    said = " ".join(train("--help", ranks=1, path=tmp_path).out.split())
    for text in ("ddp, of-a-test; by default synchronous", "[default: (64, or", "[default: (digits)]"):
        assert text in said


# --- Ranks that are told to do different things


def train_differently(these, those, path=ROOT, **env):
    """Run one job, whose last rank is given other arguments; with the launcher's syntax for many programs."""
    found = environment(PYTHONPATH=os.pathsep.join(dict.fromkeys([str(path), str(ROOT)])), **env)
    last = [":", *command(*those, ranks=2)[len(launcher()) :]]
    last[last.index("2")] = "1"
    outcome = run([*command(*these, ranks=RANKS - 1), *last], limit=60, env=found)
    assert not outcome.hung
    return outcome


OTHERWISE = [
    (["synchronous", "--batch", "96"], "batch: 24 on ranks 0-1, 96 on rank 2"),
    (
        ["synchronous", "--epochs", "2", "--seed", "7"],
        "epochs: 10 on ranks 0-1, 2 on rank 2; seed: 1 on ranks 0-1, 7 on",
    ),
    (["eager"], "method: synchronous on ranks 0-1, eager on rank 2"),
    (
        ["synchronous", "--optimizer", "sgd,rate=0.02"],
        "optimizer: sgd,momentum=0.9,rate=0.01 on ranks 0-1, sgd,rate=0.02 on",
    ),
    (["synchronous", "--ranks-per-node", "2"], "ranks_per_node: "),
]


@pytest.mark.parametrize(("those", "text"), OTHERWISE, ids=lambda one: " ".join(one) if isinstance(one, list) else "")
def test_ranks_with_different_settings(those, text):
    (method, *rest) = those
    told(train_differently(["synchronous", *SMALL], [method, *SMALL, *rest]), text)


@pytest.mark.parametrize(
    ("those", "text"),
    [
        ([], "output: given on ranks 0-1, not given on rank 2"),
        (["--output", "{folder}", "--resume"], "resume: False on ranks 0-1, True on rank 2"),
        (
            ["--output", "{folder}/other"],
            "expected rank 0's file in {folder}, found none: ranks must share the folder",
        ),
    ],
    ids=["no output", "resume", "other folder"],
)
def test_ranks_with_different_output(tmp_path, those, text):
    rest = [one.format(folder=tmp_path) for one in those]
    outcome = train_differently(["synchronous", *SMALL, "--output", tmp_path], ["synchronous", *SMALL, *rest])
    told(outcome, text.format(folder=rest[1] if "other" in "".join(rest) else tmp_path))
    assert not [*tmp_path.glob("**/*.*")], "something was trained, or a token is left"


def test_settings_that_mean_the_same(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    said = ["synchronous", *SMALL, "--epochs", "1", "--output"]
    otherwise = ["--optimizer", "sgd,momentum=0.9,rate=0.01"]
    outcome = train_differently([*said, tmp_path / "folder"], [*said, tmp_path / "link", *otherwise])
    assert outcome.status == 0


def test_an_option_that_one_rank_does_not_know():
    outcome = train_differently(["synchronous", *SMALL], ["synchronous", *SMALL, "--odd"])
    assert outcome.status != 0
    assert "No such option" in outcome.err


def test_ranks_with_different_versions(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        f"{OF_ONE_RANK}    import pycollectives\n    pycollectives.__version__ = '0.old'\n"
    )
    told(train("synchronous", *SMALL, path=tmp_path), ", 0.old on rank 1")


DIFFERENT = """
import pycollectives as pc
from mpi4py import MPI
from pycollectives.train import job
from pycollectives.train.settings import Settings

said = {"model": "hyperplane", "data": "hyperplane,dimensions=16,points=192,validation=32", "batch": 24}
with pc.Communicator(MPI.COMM_WORLD) as comm:
    try:
        job.run(Settings.of({**said, "epochs": 2 if comm.rank else 3.0}), comm)
    except pc.MismatchError as error:
        print(f"rank {comm.rank}: {error}", flush=True)
"""


def test_ranks_of_a_program_with_different_settings(tmp_path):
    (tmp_path / "program.py").write_text(DIFFERENT)
    program = [*launcher(), "-n", str(RANKS), sys.executable, str(tmp_path / "program.py")]
    outcome = run(program, limit=60, env=environment(PYTHONPATH=str(ROOT)))
    assert outcome.status == 0
    for rank in range(RANKS):
        (said,) = outcome.said(rank)
        assert said.endswith("train: arguments differ: epochs: 3 on rank 0, 2 on ranks 1-2")
