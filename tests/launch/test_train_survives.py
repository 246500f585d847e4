"""Training with `on_failure="continue"`: ranks are killed, and the others train on."""

from __future__ import annotations

import json
import random

import pytest
from killer import CRASH, WITH_FAULT_TOLERANCE, mpi_has_crashed
from launcher import launcher, mpirun
from train_command import train

pytestmark = pytest.mark.skipif(len(launcher()) == 1, reason="needs Open MPI's --with-ft")

RANKS = 4

METHODS = [
    *("synchronous", "eager", "eager,policy=full", "m-synchronous,m=2", "hop", "ad-psgd", "a2cid2", "ripples", "sgp"),
    *("d-psgd", "parameter-server", "parameter-server,sync=elastic:4", "eamsgd"),
]

DEATHS = ["3:17", "0:17", "1:0", "0:9 2:31", "0:30 1:30", "3:100", "2:1 1:2 3:3"]
"""VICTIM:STEP in which it dies."""


def check(tmp_path, method, deaths):
    """Run the program; what its survivors have said."""
    arguments = (RANKS, "train_survives.py", method, tmp_path / "run", *deaths)
    job = mpirun(*arguments, limit=90, options=WITH_FAULT_TOLERANCE, DEATH=str(tmp_path / "d"))
    victims = {int(death.partition(":")[0]) for death in deaths}
    living = [rank for rank in range(RANKS) if rank not in victims]
    if mpi_has_crashed(job):  # as docs/training.md says
        living = [rank for rank in living if job.said(rank)]
        if not living:
            pytest.skip("Open MPI has crashed on the last rank")
    for rank in living:
        assert job.said(rank)[-1:] == ["end"], job
    (lost,) = {job.said(rank)[-2] for rank in living}
    assert {*map(int, lost.removeprefix("lost:").split())} <= {*range(RANKS)} - {*living}, job
    assert "Traceback" not in job.err, job
    return job


@pytest.mark.nightly
@pytest.mark.parametrize("method", METHODS[1:])
def test_the_survivors_train_on(tmp_path, method):
    check(tmp_path, method, ["3:17"])


@pytest.mark.nightly
@pytest.mark.parametrize("deaths", DEATHS)
def test_synchronous_training_loses_no_step(tmp_path, deaths):
    """With one death the program compares the weights with those computed in one process."""
    job = check(tmp_path, "synchronous", deaths.split())
    if " " not in deaths and CRASH not in job.err:
        assert all("exact" in job.said(rank) for rank in range(RANKS) if str(rank) != deaths[0]), job


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(30))
def test_whenever_ranks_die(tmp_path, seed):
    """While the program begins, trains, settles, scores and ends, and while survivors begin again."""
    source = random.Random(seed)
    victims = source.sample(range(RANKS), source.choice([1, 1, 2, 3]))
    first = source.uniform(0.0, 1.2)
    deaths = [f"{victim}:{first + source.uniform(0.0, 0.3):.3f}s" for victim in victims]
    check(tmp_path, source.choice(METHODS), deaths)


RANK_0_DIES = """\
import os, signal
if os.environ.get("OMPI_COMM_WORLD_RANK") == "0" and os.environ.get("DIES"):
    from pycollectives.train.replica import Replica
    step = Replica.step
    def dies(replica, number, *given):
        if number == 10:
            os.kill(os.getpid(), signal.SIGKILL)
        return step(replica, number, *given)
    Replica.step = dies
"""
"""A module that Python imports at its start: if the environment has DIES, rank 0 dies in step 10."""


def command(tmp_path):
    """Return the arguments of `train` of a short job."""
    (tmp_path / "sitecustomize.py").write_text(RANK_0_DIES)
    said = ["synchronous", "--model", "hyperplane", "--data", "hyperplane,dimensions=3,points=240", "--batch", 8]
    return [*said, "--optimizer", "sgd,rate=0.02", "--output", tmp_path / "run"]


def test_the_command(tmp_path):
    """The lowest rank that is left writes the summary; two ranks can resume what three have written."""
    said = command(tmp_path)
    job = train(*said, "--on-failure", "continue", options=WITH_FAULT_TOLERANCE, path=tmp_path, ranks=4, DIES="1")
    assert "rank 0 died: 3 of 4 ranks continue from about step 10" in job.err, job
    assert "finished" in job.out, job
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["lost"], summary["ranks"], summary["finished"]) == ([0], 3, True)
    assert len(summary["curve"]) == 11
    resumed = train(*said, "--resume", "--epochs", 12, ranks=2)
    assert resumed.status == 0, resumed
    assert len(json.loads((tmp_path / "run" / "summary.json").read_text())["curve"]) == 13


def test_too_few_survivors_stop_with_a_checkpoint(tmp_path):
    """As after a signal, so that a batch script queues the job again; all ranks resume it then."""
    said = [*command(tmp_path), "--on-failure", "continue", "--at-least", 4, "--resume"]
    job = train(*said, options=WITH_FAULT_TOLERANCE, path=tmp_path, ranks=4, DIES="1")
    assert job.status == 75, job
    assert "Stopped at step 11, checkpoint in" in job.err, job  # the three have taken one step
    resumed = train(*said, options=WITH_FAULT_TOLERANCE, path=tmp_path, ranks=4)
    assert resumed.status == 0, resumed
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["lost"], summary["ranks"], summary["finished"]) == ([], 4, True)
    assert len(summary["curve"]) == 11


def test_at_least_so_many_ranks_need_a_job_that_continues(tmp_path):
    job = train(*command(tmp_path), "--at-least", 2, ranks=2)
    assert job.status == 1, job
    assert "at_least: expected 1 with on_failure 'raise', got 2" in job.err, job


@pytest.mark.parametrize(
    ("options", "method", "text"),
    [
        ((), "synchronous", "this job ends when a rank dies; start it with Open MPI 5"),
        (WITH_FAULT_TOLERANCE, "ddp", "method 'ddp' cannot lose a rank"),
    ],
)
def test_what_cannot_continue_is_refused(options, method, text):
    job = train(method, "--on-failure", "continue", "--model", "lstm", "--data", "sequences", options=options, ranks=2)
    assert job.status == 1, job
    assert text in job.err, job
