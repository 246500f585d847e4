"""`mpirun -n P python -m pycollectives train`, as jobs run it: signals, exit codes, output, what is wrong."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from launcher import environment, launcher, run

from pycollectives.train import metrics
from pycollectives.train.settings import REQUEUE

ROOT = Path(__file__).resolve().parents[2]
RANKS = 3
EPOCHS, STEPS = 10, 80
SMALL = ["--model", "hyperplane", "--data", "hyperplane,dimensions=16,points=192,validation=32"]
SMALL += ["--batch", "24", "--epochs", str(EPOCHS), "--optimizer", "sgd,rate=0.01,momentum=0.9"]
SLOWLY = ["--load", "lognormal,work_ms=40,skew_ms=20"]
SUMMING = "eager,policy=solo,missed=sum"


def command(*arguments, ranks=RANKS):
    """Return the command; one rank needs no launcher."""
    prefix = [] if ranks == 1 else [*launcher(), "-n", str(ranks)]
    return [*prefix, sys.executable, "-m", "pycollectives", "train", *map(str, arguments)]


def train(*arguments, ranks=RANKS, path=ROOT, **env):
    """Run it to its end, with modules in `path` in front of those installed."""
    found = os.pathsep.join(dict.fromkeys([str(path), str(ROOT)]))
    outcome = run(command(*arguments, ranks=ranks), limit=60, env=environment(PYTHONPATH=found, **env))
    assert not outcome.hung, outcome
    return outcome


def train_differently(these, those, path=ROOT, **env):
    """Run one job, whose last rank is given other arguments; with the launcher's syntax for many programs."""
    found = environment(PYTHONPATH=os.pathsep.join(dict.fromkeys([str(path), str(ROOT)])), **env)
    last = [":", *command(*those, ranks=2)[len(launcher()) :]]
    last[last.index("2")] = "1"
    outcome = run([*command(*these, ranks=RANKS - 1), *last], limit=60, env=found)
    assert not outcome.hung, outcome
    return outcome


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
        moment = random.Random(seed).uniform(0, 0.8)
        print(f"{signal.Signals(number).name} to {who}, {moment:.3f} s after {''.join(said)}")
        time.sleep(moment)
        os.kill(launcher_process(job.pid) if who is None else rank_process(folder, who), number)
        said += job.stderr
    return job.returncode, "".join(said)


def weights_in(folder):
    """The weights of all ranks in a checkpoint."""
    checkpoint = folder / "checkpoint"
    files = sorted((checkpoint / (checkpoint / "latest").read_text()).glob("rank-*.npz"))
    assert len(files) == RANKS
    return [np.load(path)["weights"] for path in files]


def summary_of(folder):
    return json.loads((folder / "summary.json").read_text())


# --- Signals


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
@pytest.mark.parametrize("method", ["synchronous", SUMMING, "ripples"])
def test_a_signal_to_one_rank_ends_the_job_with_a_checkpoint(tmp_path, method, number):
    """What a job script does with it: run it again with --resume as long as the exit code is 75."""
    said = [method, *SMALL, "--output", tmp_path / "stopped"]
    seed = int(number)
    code, err = stop_at_random(tmp_path, seed % RANKS, number, seed, *said, *SLOWLY)
    assert code == REQUEUE, err
    assert "Traceback" not in err
    (step, where) = re.search(
        r"^Stopped at step (\d+), checkpoint in (.*); --resume goes on\.$", err, re.MULTILINE
    ).groups()
    assert Path(where).name.startswith(f"step-{int(step):08d}.")
    assert len(list(Path(where).glob("rank-*.npz"))) == RANKS
    stopped = summary_of(tmp_path / "stopped")
    assert not stopped["finished"]
    assert stopped["same_everywhere"]
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


@pytest.mark.parametrize("method", [SUMMING, "ripples,groups=punctual,size=2"])
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
    assert outcome.status == 0, outcome
    assert outcome.out.endswith(f"{signal.SIG_IGN} {signal.SIG_IGN}\n"), outcome


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


# --- Settings


def test_a_configuration_in_toml(tmp_path):
    (tmp_path / "job.toml").write_text(
        'batch = 24\nepochs = 99\noutput = "odd"\n'
        '[method]\nname = "eager"\npolicy = "quorum:2"\n[model]\nname = "hyperplane"\n'
        '[data]\nname = "hyperplane"\ndimensions = 16\npoints = 192\nvalidation = 32\n'
        '[load]\nname = "one-late"\nwork_ms = 1\nskew_ms = 2\n'
    )
    said = ["--config", tmp_path / "job.toml", "--epochs", "2", "--output", tmp_path / "run"]
    outcome = train(*said, "--ranks", RANKS, "--ranks-per-node", 2)
    assert outcome.status == 0, outcome
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
    (["synchronous", "--batch", "25000"], "batch: expected a multiple of the"),
    (["synchronous", "--epochs", "0"], "epochs: expected a number > 0"),
    (["synchronous", "--resume"], "--resume needs --output"),
    (["synchronous", "--ranks", "2"], "expected 2 ranks, got"),
    (["synchronous", "--config", "nowhere.toml"], "'nowhere.toml' does not exist"),
    (["synchronous", "--odd"], "--odd"),
    (["synchronous", "--output", ""], "output: expected a folder, got ''"),
    (["synchronous", "--epochs", "inf"], "epochs: expected a number > 0, got inf"),
    (["synchronous", "--settle-epochs", "inf"], "settle_epochs: expected a number > 0, got inf"),
    (["synchronous", "--epochs", "1e13"], "Unable to allocate"),
    (["synchronous", "--optimizer", "sgd,rate=-1"], "optimizer: rate: expected a number > 0, got -1"),
    (["synchronous", "--optimizer", "adam,rate=0"], "optimizer: rate: expected a number > 0, got 0"),
]


IN_MANY_PLACES = [WRONG[number] for number in (0, 2, 4, 8, 11, 12, 14)]
"""One for each place where something is found out."""


@pytest.mark.parametrize(
    ("ranks", "arguments", "text"),
    [*((1, *case) for case in WRONG), *((RANKS, *case) for case in IN_MANY_PLACES)],
    ids=lambda one: " ".join(one) if isinstance(one, list) else str(one) if isinstance(one, int) else "",
)
def test_what_is_wrong_is_said_once(ranks, arguments, text):
    (method, *rest) = arguments
    told(train(method, *SMALL, *rest, ranks=ranks), text)


def told(outcome, text):
    """The job failed, with one line that says why, on one rank."""
    assert outcome.status in (1, 2), outcome
    (line,) = [line for line in outcome.err.splitlines() if "Error" in line]
    assert line.startswith("Error: "), outcome
    assert text in line, outcome
    assert "Traceback" not in outcome.err, outcome
    assert outcome.seconds < 30, outcome


def test_a_batch_that_ranks_cannot_share():
    told(train("synchronous", *SMALL, "--batch", "25"), "batch: expected a multiple of the 3 ranks")


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
            "does not see in {folder} what rank 0 has written: ranks must share the folder",
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
    assert outcome.status == 0, outcome


def test_an_option_that_one_rank_does_not_know():
    outcome = train_differently(["synchronous", *SMALL], ["synchronous", *SMALL, "--odd"])
    assert outcome.status != 0, outcome
    assert "No such option" in outcome.err, outcome
    assert outcome.seconds < 30, outcome


OF_ONE_RANK = """
import os
if os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK")) == "1":
"""


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
    assert outcome.status == 0, outcome
    for rank in range(RANKS):
        (said,) = outcome.said(rank)
        assert said.endswith("train: arguments differ: epochs: 3 on rank 0, 2 on ranks 1-2"), outcome


# --- What ranks find out at the end


def test_replicas_that_are_different_at_the_end(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        f"{OF_ONE_RANK}"
        "    from pycollectives.train.loop import Replica\n"
        "    kept = Replica.settle\n"
        "    def settle(self, *arguments):\n"
        "        kept(self, *arguments)\n"
        "        self.model.weights += 1\n"
        "    Replica.settle = settle\n"
    )
    outcome = train("synchronous", *SMALL, path=tmp_path)
    told(outcome, "Error: the replicas are different")
    assert "DIFFERENT" in outcome.out, outcome


def test_a_checkpoint_that_rank_0_does_not_see_whole(tmp_path):
    """It does not become the newest, and the one before stays."""
    (tmp_path / "sitecustomize.py").write_text(
        f"{OF_ONE_RANK}    from pycollectives.train import checkpoint\n    checkpoint._write = lambda *given: None\n"
    )
    said = ["synchronous", *SMALL, "--output", tmp_path / "run"]
    assert train(*said).status == 0
    before = (tmp_path / "run" / "checkpoint" / "latest").read_text()
    told(train(*said, "--resume", "--epochs", EPOCHS + 1, path=tmp_path), "does not see the file of rank 1 in ")
    assert (tmp_path / "run" / "checkpoint" / "latest").read_text() == before
    assert len(weights_in(tmp_path / "run")) == RANKS


def test_a_checkpoint_of_fewer_ranks(tmp_path):
    said = ["synchronous", *SMALL, "--output", tmp_path]
    assert train(*said, ranks=1).status == 0
    told(train(*said, "--resume"), "was written by 1 ranks, these are 3")


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
    assert outcome.status == 1, outcome
    assert "Error: rank 1 has left the training by an exception" in outcome.err, outcome
    assert "metrics-rank-0001.jsonl" in outcome.err, outcome
    assert "Traceback" not in outcome.err, outcome
    assert outcome.seconds < 30, outcome


RAISES = """
import os
if os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK")) == "1":
    from pycollectives.train.{module} import {name}
    kept = {name}.{method}
    def raises({self}number, *arguments, **options):
        if {when}:
            raise RuntimeError("of rank 1")
        return kept({self}number, *arguments, **options)
    {name}.{method} = raises
"""
IN_A_STEP = {"module": "loop", "name": "Replica", "method": "step", "self": "self, ", "when": "number == 5"}
WHEN_SETTLING = {"module": "loop", "name": "Replica", "method": "settle", "self": "self, ", "when": "number > 5"}


@pytest.mark.parametrize("method", ["synchronous", SUMMING, "ripples", "ripples,groups=static"])
@pytest.mark.parametrize("where", [IN_A_STEP, WHEN_SETTLING], ids=["step", "settle"])
def test_an_exception_on_one_rank_ends_the_job(tmp_path, method, where):
    (tmp_path / "sitecustomize.py").write_text(RAISES.format(**where))
    outcome = train(method, *SMALL, path=tmp_path)
    assert outcome.status == 1, outcome
    assert "RuntimeError: of rank 1" in outcome.err, outcome
    assert outcome.seconds < 30, outcome


BEFORE_STEPS = {"module": "batches", "name": "Batches", "method": "__init__", "self": "self, ", "when": "True"}

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
    assert not outcome.hung, outcome
    return outcome


ALONE = ["eager,policy=solo", "eager,policy=full", "m-synchronous,m=2", "ripples", "ripples,groups=static"]


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
    assert outcome.status == 0, outcome
    assert outcome.said(1) == ["RuntimeError: of rank 1"], outcome
    for rank in (0, 2):
        assert outcome.said(rank) == ["RankFailedError: rank 1 has left the training by an exception"], outcome


def test_a_job_whose_ranks_wait_within_a_step_ends_after_the_exit_timeout(tmp_path):
    outcome = run_library(tmp_path, IN_A_STEP, "synchronous", "raise", PYC_EXIT_TIMEOUT="2")
    assert outcome.status == 1, outcome
    assert "RuntimeError: of rank 1" in outcome.err, outcome
    assert "not closed on ranks 0, 2" in outcome.err, outcome


# --- docs/training.md


def test_the_method_of_the_documentation(tmp_path):
    page = (ROOT / "docs" / "training.md").read_text()
    (program,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "local.py").write_text(program)
    env = environment(PYTHONPATH=str(ROOT))
    outcome = run([*launcher(), "-n", str(RANKS), sys.executable, str(tmp_path / "local.py")], limit=60, env=env)
    assert outcome.status == 0, outcome
    assert re.fullmatch(r"63 steps, loss 0\.0\d\d, equal: True\n", outcome.out), outcome
