"""`mpirun -n P python -m pycollectives train` where something fails: for all at the end, or on one rank alone."""

from __future__ import annotations

import os
import sys

import pytest
from launcher import environment, launcher, run
from nightly import in_turn
from train_command import EPOCHS, OF_ONE_RANK, RANKS, ROOT, SMALL, SUMMING, told, train, weights_in

# --- What ranks find out at the end


def test_replicas_that_are_different_at_the_end(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        f"{OF_ONE_RANK}"
        "    from pycollectives.train.replica import Replica\n"
        "    kept = Replica.settle\n"
        "    def settle(self, *arguments):\n"
        "        kept(self, *arguments)\n"
        "        self.model.weights += 1\n"
        "    Replica.settle = settle\n"
    )
    outcome = train("synchronous", *SMALL, path=tmp_path)
    told(outcome, "Error: the replicas are different")
    assert "DIFFERENT" in outcome.out


def test_a_checkpoint_that_rank_0_does_not_see_whole(tmp_path):
    """It does not become the newest, and the one before stays."""
    (tmp_path / "sitecustomize.py").write_text(
        f"{OF_ONE_RANK}    from pycollectives.train import checkpoint\n    checkpoint._write = lambda *given: None\n"
    )
    said = ["synchronous", *SMALL, "--output", tmp_path / "run"]
    assert train(*said).status == 0
    before = (tmp_path / "run" / "checkpoint" / "latest").read_text()
    told(train(*said, "--resume", "--epochs", EPOCHS + 1, path=tmp_path), "expected the file of rank 1 in ")
    assert (tmp_path / "run" / "checkpoint" / "latest").read_text() == before
    assert len(weights_in(tmp_path / "run")) == RANKS


def test_a_training_that_ends_without_a_finite_loss(tmp_path):
    said = ["synchronous", *SMALL, "--optimizer", "sgd,rate=1e30", "--output", tmp_path / "run"]
    told(train(*said), "the validation loss is not finite; to allow this, pass --allow-not-finite")
    assert (tmp_path / "run" / "summary.json").exists()
    assert train(*said, "--allow-not-finite").status == 0


def test_a_checkpoint_of_fewer_ranks(tmp_path):
    said = ["synchronous", *SMALL, "--output", tmp_path, "--batch", 6]
    assert train(*said, ranks=1).status == 0
    longer = ["--resume", "--epochs", EPOCHS + 1]
    told(train(*said, *longer, "--batch", 9), "is from a run with batch = 6; this run has 9")
    assert train(*said, *longer).status == 0


@pytest.mark.parametrize("ranks", [1, RANKS])
@pytest.mark.parametrize(
    ("module", "text", "arguments", "told_how"),
    [
        ("torch", "ModuleNotFoundError(\"No module named 'torch'\", name='torch')", ["--model", "cnn"], "[torch]"),
        ("sklearn", "ImportError('not a package')", ["--data", "digits", "--model", "mlp"], "[train]"),
    ],
)
def test_an_extra_that_is_missing(tmp_path, ranks, module, text, arguments, told_how):
    (tmp_path / f"{module}.py").write_text(f"raise {text}\n")
    told(train("synchronous", *SMALL, *arguments, ranks=ranks, path=tmp_path), f"pip install 'pycollectives{told_how}'")


# --- One rank alone


def test_one_rank_cannot_write(tmp_path):
    """The others learn of it, and the job ends."""
    (tmp_path / "metrics-rank-0001.jsonl").mkdir()
    outcome = train("synchronous", *SMALL, "--output", tmp_path)
    assert outcome.status == 1
    assert "Error: rank 1 has left the training after an exception" in outcome.err
    assert "metrics-rank-0001.jsonl" in outcome.err
    assert "Traceback" not in outcome.err


RAISES = (
    OF_ONE_RANK
    + """\
    from pycollectives.train.{module} import {name}
    kept = {name}.{method}
    def raises(self, number, *arguments, **options):
        if {when}:
            raise RuntimeError("of rank 1")
        return kept(self, number, *arguments, **options)
    {name}.{method} = raises
"""
)
IN_A_STEP = {"module": "replica", "name": "Replica", "method": "step", "when": "number == 5"}
WHEN_SETTLING = {"module": "replica", "name": "Replica", "method": "settle", "when": "number > 5"}


@pytest.mark.parametrize(
    ("method", "where"),
    in_turn(["synchronous", SUMMING, "ripples", "ripples,groups=static", "ad-psgd"], [IN_A_STEP, WHEN_SETTLING]),
)
def test_an_exception_on_one_rank_ends_the_job(tmp_path, method, where):
    (tmp_path / "sitecustomize.py").write_text(RAISES.format(**where))
    outcome = train(method, *SMALL, path=tmp_path)
    assert outcome.status == 1
    assert "RuntimeError: of rank 1" in outcome.err


BEFORE_STEPS = {"module": "batches", "name": "Batches", "method": "__init__", "when": "True"}

LIBRARY = """
import sys
import pycollectives as pc
from mpi4py import MPI
from pycollectives.train import job
from pycollectives.train.settings import Settings

data = {"model": "hyperplane", "data": "hyperplane,dimensions=16,points=192,validation=32", "batch": 24}
with pc.Communicator(MPI.COMM_WORLD) as comm:
    try:
        job.run(Settings.of({"method": sys.argv[1], "epochs": 10, "settle_epochs": 2, **data}), comm)
    except Exception as error:
        if sys.argv[2] == "raise":
            raise
        print(f"rank {comm.rank}: {type(error).__name__}: {error}", flush=True)
"""


def run_library(folder, where, method, what, **variables):
    """Run a program that calls `job.run`, in which rank 1 raises."""
    (folder / "sitecustomize.py").write_text(RAISES.format(**where))
    (folder / "library.py").write_text(LIBRARY)
    env = environment(PYTHONPATH=os.pathsep.join([str(folder), str(ROOT)]), **variables)
    program = [sys.executable, str(folder / "library.py"), method, what]
    outcome = run([*launcher(), "-n", str(RANKS), *program], limit=60, env=env)
    assert not outcome.hung
    return outcome


ALONE = ["eager,policy=solo", "eager,policy=full", "m-synchronous,m=2", "ripples", "ripples,groups=static", "ad-psgd"]


@pytest.mark.parametrize(
    ("method", "where"),
    [
        *((method, IN_A_STEP) for method in ALONE),
        *((method, WHEN_SETTLING) for method in (SUMMING, "synchronous")),
        ("synchronous", BEFORE_STEPS),
    ],
)
def test_the_others_learn_of_a_rank_that_fails(tmp_path, method, where):
    """In a program of one's own, which nothing ends; it can go on after the error."""
    outcome = run_library(tmp_path, where, method, "print")
    assert outcome.status == 0
    assert outcome.said(1) == ["RuntimeError: of rank 1"]
    for rank in (0, 2):
        assert outcome.said(rank) == ["RankFailedError: rank 1 has left the training after an exception"]


def test_a_job_whose_ranks_wait_within_a_step_ends_after_the_exit_timeout(tmp_path):
    outcome = run_library(tmp_path, IN_A_STEP, "synchronous", "raise", PYC_EXIT_TIMEOUT="2")
    assert outcome.status == 1
    assert "RuntimeError: of rank 1" in outcome.err
    assert "not closed on ranks 0, 2" in outcome.err
