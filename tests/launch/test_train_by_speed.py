"""`train --by-speed`: ranks take batches from one counter."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from killer import WITH_FAULT_TOLERANCE
from launcher import environment, launcher
from nightly import nightly_unless
from train_command import RANKS, ROOT, SMALL, command, summary_of, train

from pycollectives.train import metrics

SLOW = ("--load", "one-slow,work_ms=4,skew_ms=40", "--by-speed")
"""The last rank takes 11 times as long as the others."""
STEPS = 80
METHODS = (
    *("eager,policy=quorum:2", "m-synchronous,m=2", "hop,mode=backup:1+skip:4", "ad-psgd", "a2cid2"),
    *("ripples", "d-psgd", "sgp", "parameter-server,sync=asp", "parameter-server", "eamsgd", "eager,policy=full"),
)


def steps_of(folder):
    """The numbers of the steps of each rank, as its file has them."""
    return [[line["number"] for line in metrics.read(path)] for path in sorted(folder.glob("metrics-rank-*.jsonl"))]


@pytest.mark.parametrize("method", nightly_unless({"eager,policy=quorum:2", "ad-psgd"}.__contains__, METHODS))
def test_all_batches_are_taken_once(tmp_path, method):
    outcome = train(method, *SMALL, *SLOW, "--output", tmp_path / "run")
    assert outcome.status == 0, outcome
    found = summary_of(tmp_path / "run")
    assert (found["finished"], found["steps"], found["epochs"]) == (True, STEPS, 10)
    assert found["is_same_on_all_ranks"]
    by_rank = steps_of(tmp_path / "run")
    taken = Counter(number for numbers in by_rank for number in numbers)
    assert taken == dict.fromkeys(range(STEPS), RANKS)
    assert all(numbers == sorted(numbers) for numbers in by_rank)
    if method in ("eager,policy=quorum:2", "ad-psgd", "parameter-server,sync=asp", "eamsgd"):
        *fast, slow = map(len, by_rank)
        assert slow < min(fast), (slow, fast)


def test_it_continues_from_a_checkpoint(tmp_path):
    """Whose ranks had taken different numbers of batches."""
    options = (*SMALL[:-2], "--epochs", "4", "--settle-epochs", "2", *SLOW, "--output", tmp_path / "run")
    assert train("eager,policy=quorum:2", *options).status == 0
    more = [option if option != "4" else "6" for option in map(str, options)]
    outcome = train("eager,policy=quorum:2", *more, "--resume")
    assert outcome.status == 0, outcome
    assert summary_of(tmp_path / "run")["epochs"] == 6
    taken = Counter(number for numbers in steps_of(tmp_path / "run") for number in numbers)
    assert taken == dict.fromkeys(range(6 * STEPS // 10), RANKS)


def test_it_continues_after_a_signal(tmp_path):
    """In the middle of a step of all ranks."""
    said = ("ad-psgd", *SMALL, *SLOW, "--output", tmp_path / "run")
    begun = [*command(*said)]
    env = environment(PYTHONPATH=str(ROOT))
    with subprocess.Popen(begun, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env) as job:
        for line in job.stderr:
            if line.startswith("step "):
                break
        (rank, *_) = [int(pid) for pid in Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()]
        os.kill(rank, signal.SIGUSR1)
        err = job.stderr.read()
    assert job.returncode == 75, err
    stopped = sum(map(len, steps_of(tmp_path / "run")))
    assert 0 < stopped < RANKS * STEPS
    outcome = train(*said, "--resume")
    assert outcome.status == 0, outcome
    taken = Counter(number for numbers in steps_of(tmp_path / "run") for number in numbers)
    assert taken == dict.fromkeys(range(STEPS), RANKS)
    assert summary_of(tmp_path / "run")["skipped"] == 0


@pytest.mark.parametrize("method", ["synchronous"])
def test_methods_whose_ranks_take_equally_many_steps_are_refused(method):
    outcome = train(method, *SMALL, "--by-speed")
    assert outcome.status != 0
    assert f"by_speed: expected false, since method '{method}' needs the same number" in outcome.err, outcome


@pytest.mark.skipif(len(launcher()) == 1, reason="needs Open MPI's --with-ft")
def test_survivors_take_the_batches_that_are_left(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "if os.environ.get('OMPI_COMM_WORLD_RANK') == '1' and 'train' in sys.argv:\n"
        "    from pycollectives.train.replica import Replica\n"
        "    kept = Replica.step\n"
        "    def dies(self, number, *arguments, **options):\n"
        "        if number == 9:\n"
        "            os.kill(os.getpid(), signal.SIGKILL)\n"
        "        return kept(self, number, *arguments, **options)\n"
        "    Replica.step = dies\n"
    )
    said = ("--on-failure", "continue", "--output", tmp_path / "run")
    outcome = train("eager,policy=quorum:2", *SMALL, *SLOW, *said, path=tmp_path, options=WITH_FAULT_TOLERANCE)
    found = summary_of(tmp_path / "run")
    assert (found["finished"], found["lost"], found["ranks"]) == (True, [1], RANKS - 1), outcome
    taken = Counter(number for numbers in steps_of(tmp_path / "run") for number in numbers)
    assert max(taken.values()) <= RANKS, "no batch is taken twice"
    left_out = RANKS * STEPS - sum(taken.values())
    assert 0 < left_out <= 10 + RANKS - 1, "the dead rank's, which its file lacks, and one of each survivor"
