"""`mpirun -n P python -m pycollectives train` and signals: a checkpoint, an exit code, and a run that goes on."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from launcher import environment, launcher
from nightly import in_turn
from train_command import EPOCHS, RANKS, ROOT, SLOWLY, SMALL, STEPS, SUMMING, command, summary_of, train, weights_in

from pycollectives.train import metrics
from pycollectives.train.settings import REQUEUE


def rank_process(folder, rank):
    """Return the process of a rank of the job that writes to `folder`."""
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile, or is somebody else's
            variables = (place / "environ").read_text().split("\0")
            told = {f"{name}={rank}" for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK")}
            if str(folder) in (place / "cmdline").read_text() and told & {*variables}:
                return int(place.name)
    raise AssertionError(f"no process of rank {rank}")


def launcher_process(timeout):
    """Return the only child of `timeout`."""
    (child,) = Path(f"/proc/{timeout}/task/{timeout}/children").read_text().split()
    return int(child)


def stop_at_random(folder, who, number, seed, *arguments, after="step "):
    """Start a job, send a signal to a rank or, if `who` is None, to the launcher; return its exit code and stderr.

    It is sent within 0.8 s after a line that begins with `after`.
    """
    begun = ["timeout", "--kill-after=5", "60", *command(*arguments)]
    env = environment(PYTHONPATH=str(ROOT))
    with subprocess.Popen(begun, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env) as job:
        said = []
        for line in job.stderr:
            said.append(line)
            if line.startswith(after):
                break
        else:
            raise AssertionError(f"ended with status {job.wait()} and said {said}")
        moment = random.Random(seed).uniform(0, 0.8)
        print(f"{signal.Signals(number).name} to {who}, {moment:.3f} s after {''.join(said)}")
        time.sleep(moment)
        os.kill(launcher_process(job.pid) if who is None else rank_process(folder, who), number)
        said += job.stderr
    return job.returncode, "".join(said)


@pytest.mark.parametrize(
    ("method", "number"),
    in_turn(["synchronous", SUMMING, "ripples", "hop"], [signal.SIGUSR1, signal.SIGTERM]),
)
def test_a_signal_to_one_rank_ends_the_job_with_a_checkpoint(tmp_path, method, number):
    """What a job script does with it: run it again with --resume as long as the exit code is 75."""
    said = [method, *SMALL, "--output", tmp_path / "stopped"]
    seed = int(number)
    code, err = stop_at_random(tmp_path, seed % RANKS, number, seed, *said, *SLOWLY)
    assert code == REQUEUE, err
    assert "Traceback" not in err
    (step, where) = re.search(
        r"^Stopped at step (\d+), checkpoint in (.*); --resume continues\.$", err, re.MULTILINE
    ).groups()
    assert Path(where).name.startswith(f"step-{int(step):08d}.")
    assert len(list(Path(where).glob("rank-*.npz"))) == RANKS
    stopped = summary_of(tmp_path / "stopped")
    assert not stopped["finished"]
    assert stopped["is_same_on_all_ranks"]
    assert 0 < stopped["epochs"] < EPOCHS

    resumed = train(*said, "--resume")
    assert resumed.status == 0, resumed
    assert summary_of(tmp_path / "stopped")["finished"]
    for rank in range(RANKS):
        lines = metrics.read(tmp_path / "stopped" / f"metrics-rank-{rank:04d}.jsonl")
        assert [line["number"] for line in lines] == list(range(STEPS))
        elapsed = [line["elapsed_s"] for line in lines]
        assert elapsed == sorted(elapsed)
    if method == "synchronous":
        undisturbed = train(method, *SMALL, "--output", tmp_path / "undisturbed")
        assert undisturbed.status == 0, undisturbed
        for one, other in zip(weights_in(tmp_path / "stopped"), weights_in(tmp_path / "undisturbed"), strict=True):
            assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("method", [SUMMING, "ripples,groups=punctual,size=2", "hop,mode=backup:2,max_ig=80"])
def test_a_signal_to_a_rank_that_has_taken_all_its_steps(tmp_path, method):
    """Rank 0, which waits for the slow one: all end with what they have, and go on from there."""
    said = [method, *SMALL, "--output", tmp_path]
    slowly = ["--load", "one-slow,work_ms=20,factor=20"]
    code, err = stop_at_random(tmp_path, 0, signal.SIGUSR1, 4, *said, *slowly, after=f"step {STEPS} of {STEPS}")
    assert code == REQUEUE, err
    assert len(metrics.read(tmp_path / "metrics-rank-0000.jsonl")) == STEPS
    assert len(metrics.read(tmp_path / "metrics-rank-0002.jsonl")) < STEPS
    assert train(*said, "--resume").status == 0
    assert len(metrics.read(tmp_path / "metrics-rank-0002.jsonl")) == STEPS


def test_a_signal_after_the_end_changes_nothing(tmp_path):
    """Python restores the default handlers, which end the process, before it leaves MPI."""
    (tmp_path / "sitecustomize.py").write_text(
        "import atexit, signal\n"
        "atexit.register(lambda: print(*map(signal.getsignal, (signal.SIGUSR1, signal.SIGTERM))))\n"
    )
    outcome = train("synchronous", *SMALL, ranks=1, path=tmp_path)
    assert outcome.status == 0
    assert outcome.out.endswith(f"{signal.SIG_IGN} {signal.SIG_IGN}\n")


def test_without_output_there_is_nothing_to_requeue_for(tmp_path):
    config = tmp_path / "marks-the-processes.toml"
    config.write_text("")
    code, err = stop_at_random(tmp_path, 0, signal.SIGUSR1, 1, "synchronous", *SMALL, *SLOWLY, "--config", config)
    assert code == 1, err
    assert "without --output no checkpoint was written" in err


def test_a_stop_whose_summary_cannot_be_written(tmp_path):
    """It has a checkpoint: it is to be run again."""
    (tmp_path / "summary.json").mkdir()
    said = ["synchronous", *SMALL, *SLOWLY, "--output", tmp_path]
    code, err = stop_at_random(tmp_path, 1, signal.SIGUSR1, 5, *said)
    assert code == REQUEUE, err
    assert [line for line in err.splitlines() if "summary.json" in line and line.startswith("Error: ")], err
    assert "Traceback" not in err


@pytest.mark.parametrize("method", ["synchronous", SUMMING])
def test_an_interrupt_of_a_rank_is_said_in_a_line(tmp_path, method):
    said = [method, *SMALL, *SLOWLY, "--output", tmp_path]
    code, err = stop_at_random(tmp_path, 1, signal.SIGINT, 6, *said)
    assert code == 1, err
    assert "Error: interrupted" in err
    assert "Traceback" not in err


def test_the_launcher_passes_sigusr1_on(tmp_path):
    if "--oversubscribe" not in launcher():
        pytest.skip("of Open MPI's mpirun")
    said = ["synchronous", *SMALL, *SLOWLY, "--output", tmp_path]
    code, err = stop_at_random(tmp_path, None, signal.SIGUSR1, 3, *said)
    assert code == REQUEUE, err
    assert not summary_of(tmp_path)["finished"]
