"""Jobs of every template on the virtual cluster: submitted, refused, stopped and resumed."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from pycollectives.slurm import profiles

pytestmark = pytest.mark.timeout(800)

PROGRAMS = Path(__file__).parent / "programs"
COUNTS = PROGRAMS / "counts.py"


def counting(steps: int, stops: int = 0) -> list[object]:
    return ["--", "python", COUNTS, "{results}", steps, stops]


# --- Every template ---------------------------------------------------------------------------------------------------


TEMPLATES = {
    "generic": (["--cluster", "generic", "-p", "nid"], 1, {}),
    "generic, mpirun": (["--cluster", "generic", "-p", "gtx", "--launcher", "mpirun", "--tasks-per-node", 2], 2, {}),
    "piz-daint": (["--cluster", "piz-daint"], 1, {"MPICH_RDMA_ENABLED_CUDA": "1", "OMP_NUM_THREADS": "12"}),
    "alps": (["--cluster", "alps", "-p", "gh"], 4, {"MPICH_GPU_SUPPORT_ENABLED": "1", "OMP_NUM_THREADS": "72"}),
    # TACC's ibrun is to be had at TACC only: tests/cluster/programs/ibrun stands in for it.
    "maverick2": (["--cluster", "maverick2"], 4, {"OMP_NUM_THREADS": "4"}),
}
"""For each the options, ranks per node, and what the template or the profile sets."""


def test_no_template_is_left_out():
    assert {name.partition(",")[0] for name in TEMPLATES} == set(profiles.templates())


@pytest.mark.parametrize("nodes", [2, 4])
@pytest.mark.parametrize("name", TEMPLATES)
def test_a_job_of_every_template(jobs, name, nodes):
    if name == "alps" and not jobs.cluster.has_host_names:
        pytest.skip("under srun, 4 ranks on nodes of one host name fail in MPI_Init; as root each has its own")
    options, per_node, environment = TEMPLATES[name]
    done = jobs.command("submit", *options, "--nodes", nodes, "--wait", *counting(3))
    assert (done.returncode, done.stderr) == (0, ""), jobs.logs()
    job = done.stdout.strip()
    ranks = nodes * per_node
    result = jobs.result(job)
    assert (result["ranks"], result["step"], result["total"]) == (ranks, 3, 3 * ranks)
    assert result["environment"] == environment
    assert name != "alps" or sorted(result["gpus"]) == sorted("0123" * nodes)  # each rank has one
    log = jobs.log(job)
    for said in (f"ranks: {ranks}", "MPI library: ", "Python: ", "pycollectives: ", "mpi4py: ", f"SLURM_NTASKS={ranks}",
                 f"=== job {job}, start 1", "commit: ", "=== status 0"):  # fmt: skip
        assert said in log
    assert ("modules: daint-gpu" in log) == (name == "piz-daint")
    assert (jobs.folder / "runs" / job / "job.sh").read_text().startswith("#!/bin/bash\n")


MPIRUN = ["--launcher", "mpirun", "--launcher-option=--bind-to", "--launcher-option=none"]
"""More ranks than this machine has cores."""
DEVICES = {
    "alps": (["--cluster", "alps", "-p", "gh"], 4, "0,1,2,3"),
    "generic": (["-p", "gh", "--tasks-per-node", 4], 4, "0,1,2,3"),
    "generic, mpirun": (["-p", "gh", "--tasks-per-node", 4, *MPIRUN], 4, "0,1,2,3"),
    "piz-daint": (["--cluster", "piz-daint", "--tasks-per-node", 2], 2, None),
}
"""Of templates that ask for GPUs, or share one: options, ranks per node, and the devices that a rank sees; None: what
is there."""


@pytest.mark.parametrize("name", DEVICES)
def test_every_rank_sees_all_devices_of_its_job_on_the_node(jobs, name):
    """Of which it takes one by its number there: CUDA IPC fails between ranks to each of which a device was bound."""
    if not jobs.cluster.has_host_names:
        pytest.skip("under srun, several ranks on nodes of one host name fail in MPI_Init; as root each has its own")
    options, per_node, devices = DEVICES[name]
    done = jobs.command("submit", *options, "--nodes", 2, "--device", "cuda", "--wait", *counting(3))
    assert (done.returncode, done.stderr) == (0, ""), jobs.logs()
    job = done.stdout.strip()
    result = jobs.result(job)
    assert (result["ranks"], result["gpus"]) == (2 * per_node, 2 * per_node * [devices])
    assert (result["environment"].get("CRAY_CUDA_MPS") == "1") == (name == "piz-daint")
    said = [line for line in jobs.log(job).splitlines() if line.startswith("GPUs visible to ranks: ")]
    assert [re.findall(r"gh\d{3} (\S+) to (\d+)", line) for line in said] == (
        [2 * [(devices, str(per_node))]] if devices else []
    )


def test_a_benchmark(jobs):
    """The library itself, over srun: its results are in the job's folder."""
    command = "python -m pycollectives bench latency --policy full --bytes 8 --iterations 5 --json {results}/out.json"
    job = jobs.submit("--nodes", 2, "--", *command.split())
    jobs.wait_for_end(job)
    assert '"ranks": 2,' in (jobs.folder / "runs" / job / "out.json").read_text()


def test_the_status_of_a_job_is_that_of_its_program(jobs):
    done = jobs.command("submit", "--wait", "--", "sh", "-c", 'echo it\\\'s "$1"; exit 3', "name", "a $b  'c' *")
    assert (done.returncode, done.stderr) == (3, "the job ended with status 3\n")
    assert "it's a $b  'c' *\n" in jobs.log(done.stdout.strip())


# --- Refused ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--nodes", 9], "Node count specification invalid"),
        (["--tasks-per-node", 1000], "More processors requested than permitted"),
        (["--cluster", "alps", "-p", "nid"], "More processors requested than permitted"),
        (["--constraint", "quantum"], "Invalid feature specification"),
        (["--partition", "nowhere"], "Invalid partition name specified"),
        (["--time", "2-0"], "Requested time limit is invalid"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_an_impossible_shape_is_refused_in_one_line(jobs, options, complaint):
    done = jobs.command("submit", *options, "--test-only", "--", "true")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: sbatch: ")
    assert len(done.stderr.splitlines()) == 1
    assert complaint in done.stderr


@pytest.mark.parametrize(
    "options", [["--nodes", 4], ["--cluster", "alps", "-p", "gh", "--nodes", 4]], ids=["piz-daint", "alps"]
)
def test_a_possible_shape_is_not_submitted_either(jobs, options):
    done = jobs.command("submit", *options, "--test-only", "--", "true")
    assert (done.returncode, done.stderr) == (0, "")
    assert "to start at" in done.stdout
    assert not list(jobs.folder.iterdir())
    assert str(jobs.folder) not in jobs.cluster.ask("squeue", "--format=%Z")


def test_the_wrong_protocol_is_noticed(jobs):
    """PMI-2 is not what Open MPI speaks: without the check, the program would run as two programs of one rank."""
    options = ["--nodes", 2, "--launcher-option=--mpi=pmi2", "--wait"]
    done = jobs.command("submit", *options, *counting(3))
    assert done.returncode == 1, jobs.logs()
    job = done.stdout.strip()
    complaints = [line for line in jobs.log(job).splitlines() if line.startswith("Error: ")]
    assert len(complaints) == 1
    assert "expected 2 ranks (SLURM_NTASKS), but MPI.COMM_WORLD has 1" in complaints[0]
    assert not (jobs.folder / "runs" / job / "result.json").exists()


# --- Stopped and resumed ----------------------------------------------------------------------------------------------


def assert_resumed(jobs, job: str, ranks: int, steps: int) -> None:
    """Every step was done once, by all ranks, in two starts."""
    result = jobs.result(job)
    first, second = result["starts"]
    assert first == 0 < second, jobs.log(job)
    assert (result["ranks"], result["step"]) == (ranks, max(second, steps))
    assert result["total"] == result["step"] * ranks
    log = jobs.log(job)
    assert [f"=== job {job}, start {n}" in log for n in (1, 2, 3)] == [True, True, False]


def test_a_job_that_is_told_to_stop_is_resumed(jobs):
    """Under every launcher, at the same time."""
    steps = 50
    numbers = [
        jobs.submit(*options, "--nodes", 2, "--tasks-per-node", 1, *counting(steps, stops=1))
        for options in (
            ["--cluster", "piz-daint"],
            ["--cluster", "generic", "--launcher", "mpirun", "-p", "gh"],
            ["--cluster", "maverick2"],
        )
    ]
    for job in numbers:
        jobs.stop_once_counting(job)
    jobs.wait_for_end(*numbers)
    for job in numbers:
        assert_resumed(jobs, job, 2, steps)


TRAINING = (
    "exec python -m pycollectives train synchronous --model hyperplane --data hyperplane,dimensions=64,points=512 "
    "--batch 32 --epochs 8 --load equal,work_ms=$((SLURM_RESTART_COUNT ? 1 : 1000)) --output $PYC_RESULTS --resume"
)
"""Takes two minutes, unless it is the second start."""


def test_a_preempted_training_is_resumed(jobs):
    """A job of a partition with a higher priority needs all its nodes; the loss is as if that had not been."""
    options = ["--nodes", 2, "--", "sh", "-c"]
    job = jobs.submit("-p", "spot", *options, TRAINING)
    undisturbed = jobs.submit("-p", "nid", *options, f"SLURM_RESTART_COUNT=1; {TRAINING}")
    jobs.wait_for_log(job, " of 128: loss")
    urgent = jobs.submit("-p", "spot-urgent", "--nodes", 2, *counting(3))
    jobs.wait_for_end(job, undisturbed, urgent)
    log = jobs.log(job)
    assert "=== USR1 at" in log
    assert log.index("=== status 75") < log.index("=== queued again") < log.index(f"=== job {job}, start 2")
    assert f"=== job {job}, start 3" not in log
    assert f"=== job {undisturbed}, start 2" not in jobs.log(undisturbed)
    assert jobs.result(urgent)["ranks"] == 2
    ends = [jobs.result(number, "summary.json") for number in (job, undisturbed)]
    for end in ends:
        assert (end["finished"], end["ranks"], end["is_same_on_all_ranks"]) == (True, 2, True)
    assert ends[0]["curve"][-1]["loss"] == ends[1]["curve"][-1]["loss"]
    steps = (jobs.folder / "runs" / job / "metrics-rank-0000.jsonl").read_text().splitlines()
    assert json.loads(steps[0])["compute_s"] > 0.9  # of the first start: the second has not begun anew


DIES = (
    "import os, signal; from pycollectives.train.replica import Replica; step = Replica.step\n"
    "def dies(replica, number, *given):\n"
    "    is_victim = os.environ.get('OMPI_COMM_WORLD_RANK') == '1' and 'SLURM_RESTART_COUNT' not in os.environ\n"
    "    if number == 3 and is_victim:\n"
    "        os.kill(os.getpid(), signal.SIGKILL)\n"
    "    return step(replica, number, *given)\n"
    "Replica.step = dies\n"
)
"""A module that Python imports at its start: rank 1 of a job's first start dies."""


@pytest.mark.parametrize("at_least", [1, 3])
def test_a_rank_dies_in_a_training_that_continues(jobs, at_least):
    """Its survivors train on, or are queued again with all ranks if they are too few."""
    (jobs.folder / "sitecustomize.py").write_text(DIES)
    (jobs.folder / "profile.toml").write_text(f"environment = {{PYTHONPATH = '{jobs.folder}'}}")
    options = ["--profile", "profile.toml", "-p", "gh", "--nodes", 3, *MPIRUN, "--on-failure", "continue"]
    training = "train synchronous --model hyperplane --data hyperplane,dimensions=3,points=240 --batch 12 --epochs 3"
    training += f" --on-failure continue --at-least {at_least} --output {{results}} --resume"
    job = jobs.submit(*options, "--", "python", "-m", "pycollectives", *training.split())
    jobs.wait_for_end(job)
    summary = jobs.result(job, "summary.json")
    assert (summary["finished"], summary["lost"]) == (True, [1] if at_least == 1 else []), jobs.log(job)
    assert ("=== queued again" in jobs.log(job)) == (at_least == 3)
    assert "=== status 0" in jobs.log(job)


def test_a_spare_replaces_a_dead_rank(jobs):
    """The members are on both nodes, and the spare is the last rank."""
    program = PROGRAMS / "spare.py"
    options = ["-p", "gh", "--nodes", 2, *MPIRUN, "--on-failure", "continue", "--spares", 1, "--wait"]
    done = jobs.command("submit", *options, "--", "python", program, "{results}")
    assert (done.returncode, done.stderr) == (0, ""), jobs.logs()
    result = jobs.result(done.stdout.strip())
    assert (result["members"], result["lost"]) == ([0, 1], [1])
    first, second, spare = result["hosts"]
    assert spare in (first, second)
    assert first != second or not jobs.cluster.has_host_names, result


def test_a_signal_that_comes_before_the_program(jobs):
    """There is nothing to stop yet: the job is queued again at once."""
    profile = jobs.folder / "early.toml"
    profile.write_text("lines = ['[[ -n $SLURM_RESTART_COUNT ]] || kill -USR1 $$']")
    job = jobs.submit("--profile", profile, *counting(3))
    jobs.wait_for_end(job)
    assert jobs.log(job).count("counting from 0") == 1
    assert f"=== job {job}, start 2" in jobs.log(job)
    assert jobs.result(job)["total"] == 3


def test_a_cancelled_job_is_not_queued_again(jobs):
    """Its program is told to stop as well, and may be quick enough to say that it wants to be run again."""
    quick = jobs.folder / "ibrun"  # srun and mpirun may not be, and then it is their status that the job sees
    quick.write_text(
        "#!/bin/bash\n[[ $* == *check-ranks* ]] && exit\ntrap : TERM\necho waiting\nsleep 99 & wait\nexit 75\n"
    )
    quick.chmod(0o755)
    jobs.environment["PATH"] = f"{jobs.folder}:{jobs.environment['PATH']}"
    job = jobs.submit("--launcher", "ibrun", "--", "true")
    jobs.wait_for_log(job, "\nwaiting")
    jobs.cluster.ask("scancel", job)
    jobs.wait_for_log(job, "=== status 75")
    jobs.wait_for_end(job)
    assert "=== not queued again: it was cancelled" in jobs.log(job)
    assert (jobs.cluster.job(job)["JobState"], jobs.cluster.job(job)["Restarts"]) == ("CANCELLED", "0")


def test_a_job_is_not_queued_again_for_ever(jobs):
    profile = jobs.folder / "once.toml"
    profile.write_text("max_requeues = 1")
    job = jobs.submit("--profile", profile, "--", "sh", "-c", "exit 75")
    jobs.wait_for_end(job)
    assert jobs.cluster.job(job)["ExitCode"] == "75:0"
    assert jobs.log(job).count("=== queued again") == 1
    assert "=== not queued again: the limit of 1 times is reached" in jobs.log(job)


# --- Sweeps -----------------------------------------------------------------------------------------------------------


def test_a_sweep(jobs):
    """One task for each combination; one that is stopped is resumed, and the others are not touched."""
    program = "import sys; print(*sys.argv[1:], open(sys.argv[1] + '/said', 'w').write(' '.join(sys.argv[2:])))"
    options = ["--method", "solo", "--method", "quorum:2", "--seed", 1, "--seed", 2, "--wait"]
    command = ["--", sys.executable, "-c", program, "{results}", "{method}", "--seed={seed}"]
    done = jobs.command("sweep", *options, *command)
    assert (done.returncode, done.stderr) == (0, ""), jobs.logs()
    job = done.stdout.strip()
    said = [(jobs.folder / "runs" / f"{job}_{task}" / "said").read_text() for task in range(4)]
    assert said == ["solo --seed=1", "solo --seed=2", "quorum:2 --seed=1", "quorum:2 --seed=2"]
    assert all("ranks: 1\n" in jobs.log(f"{job}_{task}") for task in range(4))


def test_a_task_of_a_sweep_that_is_told_to_stop_is_resumed(jobs):
    """And no other: the id of one task, which is SLURM's choice, is that of the whole array."""
    options = ["--seed", 120, "--seed", 121, "--nodes", 1]
    done = jobs.command("sweep", *options, "--", "python", COUNTS, "{results}", "{seed}", 1)
    job = done.stdout.strip()
    tasks = [f"{job}_0", f"{job}_1"]
    for task in tasks:
        jobs.wait_for_log(task, "counting from 0")
    same, other = sorted(tasks, key=lambda task: jobs.cluster.job(task)["JobId"] != job)
    jobs.stop_once_counting(same)
    jobs.wait_for_log(same, "=== status 0")
    assert "stopp" not in jobs.log(other)
    jobs.stop_once_counting(other)
    jobs.wait_for_end(job)
    for task, steps in zip(tasks, (120, 121), strict=True):
        assert_resumed(jobs, task, 1, steps)
