"""Batch scripts and cluster profiles, without SLURM; tests/cluster runs them."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pycollectives.slurm import profiles, scripts

ROOT = Path(__file__).resolve().parents[3]
COMMAND = ["python", "-m", "pycollectives", "bench", "skew"]


def run(*arguments, **environment):
    command = [sys.executable, "-m", "pycollectives", "slurm", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, env={**os.environ, **environment})


def refused(*arguments, **environment):
    """What is said, in one line."""
    done = run(*arguments, **environment)
    assert (done.returncode, done.stdout) == (1, "")
    line = done.stderr.removesuffix("\n")
    assert line.startswith("Error: ")
    assert "\n" not in line
    return line.removeprefix("Error: ")


def directives(script):
    return re.findall(r"^#SBATCH (.*)$", script, re.MULTILINE)


def bash(script, *arguments):
    return subprocess.run(["bash", *arguments], input=script, capture_output=True, text=True, timeout=10)


# --- Scripts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("array", [False, True], ids=["job", "array"])
@pytest.mark.parametrize("launcher", profiles.LAUNCHERS)
@pytest.mark.parametrize("name", profiles.names())
def test_every_script_is_bash(name, launcher, array):
    full = {
        "launcher": launcher,
        "launcher_options": ["--mpi=pmix", "an option"],
        "modules": ["gcc/13", "openmpi"],
        "lines": ["source env.sh", "x=$(( 1 + 1 ))"],
        "environment": {"A": "it's $HOME", "B": ""},
        "directives": ["--mail-type=END"],
        "cpus_per_task": 4,
        "gpus_per_task": 1,
        "account": "g33",
    }
    for overrides in ({"launcher": launcher}, full):
        script = scripts.render(profiles.built_in(name, overrides), [COMMAND] * (2 if array else 1), array=array)
        checked = bash(script, "-n")
        assert (checked.returncode, checked.stderr) == (0, "")
        assert script.startswith("#!/bin/bash\n")
        assert "CONT" not in "".join(re.findall(r"^trap.*$", script, re.MULTILINE))
        assert {"--requeue", "--signal=B:USR1@60", "--open-mode=append"} <= {*directives(script)}
    assert "--mail-type=END" in directives(script)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("piz-daint", ["--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--constraint=gpu"]),
        ("alps", ["--nodes=2", "--ntasks=8", "--ntasks-per-node=4", "--gpus-per-task=1"]),
        ("maverick2", ["--nodes=2", "--ntasks=8", "--ntasks-per-node=4", "--partition=gtx"]),
        ("generic", ["--nodes=1", "--ntasks=1", "--ntasks-per-node=1", "--output=runs/%j.log"]),
    ],
)
def test_what_the_built_in_profiles_ask_for(name, expected):
    assert {*expected} <= {*directives(scripts.render(profiles.built_in(name), [COMMAND]))}


@pytest.mark.parametrize(
    ("name", "overrides", "expected"),
    [
        ("alps", {}, ["--gres=gpu:4"]),
        ("alps", {"tasks_per_node": 8}, ["--gres=gpu:4"]),
        ("generic", {"tasks_per_node": 3}, ["--gres=gpu:3"]),
        ("generic", {"tasks_per_node": 3, "gpus_per_task": 2}, ["--gres=gpu:6"]),
        ("generic", {"tasks_per_node": 8, "gpus_per_node": 1}, ["--gres=gpu:1"]),
        ("piz-daint", {"tasks_per_node": 4}, []),  # a node has one
        ("maverick2", {}, []),  # whole nodes are allocated
    ],
)
def test_what_is_asked_for_if_arrays_are_on_devices(name, overrides, expected):
    def asked(command, **more):
        script = scripts.render(profiles.built_in(name, {**overrides, **more}), [command])
        return [directive for directive in directives(script) if "gpu:" in directive or "gpus" in directive]

    assert asked(COMMAND, device="cuda") == asked([*COMMAND, "--device", "cuda"]) == expected
    per_task = overrides.get("gpus_per_task", 1 if name == "alps" else None)
    on_hosts = [f"--gpus-per-task={per_task}"] if per_task else []
    assert asked(COMMAND) == on_hosts
    assert asked([*COMMAND, "--device", "cuda"], device="cpu") == on_hosts


def test_ranks_share_the_gpu_of_piz_daint_by_mps():
    assert "CRAY_CUDA_MPS" not in scripts.render(profiles.built_in("piz-daint"), [COMMAND])
    assert "\nexport CRAY_CUDA_MPS=1 " in scripts.render(profiles.built_in("piz-daint", {"device": "cuda"}), [COMMAND])


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("piz-daint", "export MPICH_RDMA_ENABLED_CUDA=1"),
        ("alps", "export MPICH_GPU_SUPPORT_ENABLED=1"),
        ("maverick2", "launch=(ibrun)"),
        ("generic", "launch=(srun "),
    ],
)
def test_what_is_particular_to_a_template(name, line):
    for other in profiles.names():
        script = scripts.render(profiles.built_in(other), [COMMAND])
        assert (line in script) == (other == name or (line == "launch=(srun " and other != "maverick2")), other


def test_ranks_that_may_die():
    script = scripts.render(profiles.built_in("generic", {"launcher": "mpirun", "on_failure": "continue"}), [COMMAND])
    assert "launch=(mpirun --with-ft ulfm --mca async_mpi_finalize 1 " in script
    assert "--with-ft" not in scripts.render(profiles.built_in("generic", {"launcher": "mpirun"}), [COMMAND])
    for launcher in ("srun", "ibrun"):
        with pytest.raises(ValueError, match=f"with 'continue', expected the launcher mpirun, got {launcher}"):
            profiles.built_in("generic", {"launcher": launcher, "on_failure": "continue"})
    with pytest.raises(ValueError, match="on_failure: expected raise or continue, got 'ignore'"):
        profiles.built_in("generic", {"on_failure": "ignore"})


def test_spares_are_further_ranks_on_the_same_nodes():
    def rendered(spares):
        options = ["--nodes", 4, "--tasks-per-node", 2, "--launcher", "mpirun", "--on-failure", "continue"]
        done = run("render", *options, *(["--spares", spares] if spares else []), "--", "python", "program.py")
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    assert {"--nodes=4", "--ntasks=10", "--ntasks-per-node=3"} <= {*directives(rendered(2))}
    assert {"--nodes=4", "--ntasks=13", "--ntasks-per-node=4"} <= {*directives(rendered(5))}
    assert "\nexport PYC_SPARES=2\n" in rendered(2)
    assert ' --map-by node -n "$SLURM_NTASKS")' in rendered(2)
    without = rendered(0)
    assert {"--ntasks=8", "--ntasks-per-node=2"} <= {*directives(without)}
    assert "SPARES" not in without
    assert "--map-by" not in without
    assert refused("render", "--spares", 1, "--", "true") == "spares: expected 0 with on_failure 'raise', got 1"
    options = ["--launcher", "mpirun", "--on-failure", "continue", "--spares=-1"]
    assert refused("render", *options, "--", "true") == "spares: expected an integer of at least 0, got -1"


def test_gpu_memory_is_not_sent_from_nodes_without():
    script = scripts.render(profiles.built_in("piz-daint", {"constraint": "mc"}), [COMMAND])
    assert "MPICH_RDMA_ENABLED_CUDA" not in script


WORDS = [
    "it's",
    '"',
    "$HOME",
    "`id`",
    "a  b",
    "*",
    "",
    "\\",
    "new\nline",
    "#",
    "{results}/x y",
    "{a: 1}",
    "-n",
    "!",
    "é",
]


@pytest.mark.parametrize("array", [False, True], ids=["job", "array"])
def test_the_words_of_a_command_reach_it_unchanged(array):
    script = scripts.render(profiles.Profile(), [["printf", r"%s\0", *WORDS]], array=array)
    [command] = re.findall(r"^(?:  0\) )?(command=\(.*?\))(?: ;;)?\n(?=\n|esac)", script, re.MULTILINE | re.DOTALL)
    said = bash(f'PYC_RESULTS="/a folder"\n{command}\n"${{command[@]}}"')
    assert said.stderr == ""
    assert said.stdout.split("\0")[:-1] == [word.replace("{results}", "/a folder") for word in WORDS]


def test_values_of_the_environment_are_not_expanded():
    script = scripts.render(profiles.Profile(environment={"A": "$(id) 'x'"}), [COMMAND])
    [line] = re.findall(r"^export A=.*$", script, re.MULTILINE)
    assert bash(f'{line}\necho "$A"').stdout == "$(id) 'x'\n"


def test_a_sweep_is_a_product():
    script = run(
        *["sweep", "--dry-run", "--at-most", 2, "--method", "eager,policy=majority", "--method", "sync"],
        *["--seed", 1, "--seed", 2, "--", "python", "-m", "pycollectives", "train", "{method}", "--seed={seed}", "{x}"],
    ).stdout
    assert {"--array=0-3%2", "--output=runs/%A_%a.log"} <= {*directives(script)}
    assert re.findall(r"^  \d\) command=\((.*)\) ;;$", script, re.MULTILINE) == [
        f"python -m pycollectives train {method} --seed={seed} '{{x}}'"
        for method in ("eager,policy=majority", "sync")
        for seed in (1, 2)
    ]
    assert bash(script, "-n").stderr == ""


def test_a_method_that_looks_like_a_place_is_not_one():
    assert scripts.product(["{method}", "{seed}"], method=["{seed}"], seed=["1"]) == [["{seed}", "1"]]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--seed", "1", "--", "train"], "--seed: expected {seed} in the command, got train"),
        (["--seed", "1", "--", "train", "{method}", "{seed}"], "{method} in the command: expected at least one --met"),
        (["--", "train"], "expected values to sweep over: --method, --seed"),
    ],
)
def test_sweeps_that_say_too_little(arguments, complaint):
    assert refused("sweep", "--dry-run", *arguments).startswith(complaint)


@pytest.mark.parametrize("word", ["{result}", "--output={Result}", "runs/{RESULTS}", "{reslts}/out.json"])
def test_a_misspelt_place_of_the_results_is_refused(word):
    """It would be a folder, the same one for all tasks."""
    place = word[word.index("{") : word.index("}") + 1]
    with pytest.raises(ValueError, match=re.escape(f"{place} in the command: did you mean {{results}}?")):
        scripts.render(profiles.Profile(), [["train", "--seed=1", word]], array=True)
    assert scripts.render(profiles.Profile(), [["train", "{results}", word]]), "it is something else"


# --- Profiles ---------------------------------------------------------------------------------------------------------


def test_a_profile_of_ones_own(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'base = "alps"\npartition = "debug"\ntime = "00:10:00"\nlines = ["source env.sh"]\n[environment]\nX = "1"\n'
    )
    script = run("render", "--profile", path, "--nodes", 3, "--", *COMMAND).stdout
    expected = {"--partition=debug", "--time=00:10:00", "--nodes=3", "--ntasks=12", "--gpus-per-task=1"}
    assert expected <= {*directives(script)}
    assert "\nsource env.sh\n" in script
    assert "export OMP_NUM_THREADS=72\nexport X=1\n" in script


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("nodes = 0", "nodes: expected an integer of at least 1, got 0"),
        ("nodes = true", "nodes: expected an integer of at least 1, got True"),
        ('nodes = "2"', "nodes: expected an integer of at least 1, got '2'"),
        ("tasks_per_node = -1", "tasks_per_node: expected an integer of at least 1, got -1"),
        ("node = 2", "unknown key 'node': did you mean 'nodes'?"),
        ("quantum = 2", "unknown key 'quantum': the keys are template, job_name, nodes,"),
        ('time = "1h"', "time: expected a time such as 30 (minutes), 01:30:00 or 1-12:00:00, got '1h'"),
        ('time = "0"', "time: expected a time, in quotes, of more than 0, got '0'"),
        ("time = 10", "time: expected a time, in quotes, of more than 0, got 10"),
        ('time = "1"', "time: expected more than signal_before, the 60 s between the job's signal and its end"),
        ('partition = "a b"', "partition: expected a word without white space"),
        ('account = "x\\n#SBATCH --nodes=9"', "account: expected a word without white space"),
        ('directives = ["nodes=9"]', "directives: expected a list of options of sbatch"),
        ('directives = ["-n\\n9"]', "directives: expected a list of options of sbatch"),
        ('launcher = "aprun"', "launcher: expected one of srun, mpirun, ibrun, got 'aprun'"),
        ('template = "base"', "template: expected one of alps, generic, maverick2, piz-daint, got 'base'"),
        ('base = "titan"', "expected one of the built-in profiles alps, generic, maverick2, piz-daint; got 'titan'"),
        ("modules = 'gcc'", "modules: expected a list of words"),
        ("[environment]\nA = 1", "environment: expected a table of strings, by names of variables"),
        ("[environment]\n'A-B' = '1'", "environment: expected a table of strings, by names of variables"),
        ("nodes = = 2", "Invalid value (at line 1, column 9)"),
    ],
)
def test_bad_profiles(tmp_path, text, complaint):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=re.escape(f"{path}: {complaint}")) as caught:
        profiles.load(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--nodes", "0"], "nodes: expected an integer of at least 1, got 0"),
        (["--time", "soon"], "time: expected a time such as 30 (minutes), 01:30:00 or 1-12:00:00, got 'soon'"),
        (
            ["--cluster", "titan"],
            "expected one of the built-in profiles alps, generic, maverick2, piz-daint; got 'titan'",
        ),
        (["--profile", "nowhere.toml"], "nowhere.toml: No such file or directory"),
        (["--cluster", "alps", "--profile", "x.toml"], "expected --cluster or --profile, got both"),
        (["--folder", "a b"], "folder: expected a path without white space"),
        (["--launcher", "aprun"], "launcher: expected one of srun, mpirun, ibrun, got 'aprun'"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_bad_options(options, complaint):
    """Before anything is submitted: there is no sbatch here."""
    assert refused("submit", *options, "--", "true", PATH="").startswith(complaint)


@pytest.mark.parametrize(("template", "key"), [("maverick2", "partition"), ("piz-daint", "constraint")])
def test_what_a_template_needs(tmp_path, template, key):
    path = tmp_path / "mine.toml"
    path.write_text(f'template = "{template}"\n')
    said = refused("render", "--profile", path, "--", "true")
    assert said == f"the template {template} needs a {key}: pass --{key}, or set {key} in a profile"


@pytest.mark.parametrize(
    ("time", "expected"), [("90", 5400), ("1:30", 90), ("01:30:00", 5400), ("1-12", 129600), ("1-0:30:5", 88205)]
)
def test_times(time, expected):
    assert profiles.seconds(time) == expected


@pytest.mark.parametrize("time", ["", "1-", "-1", "1:2:3:4", "1.5", "1-2:3:4:5", "²", " 1"])
def test_no_times(time):
    with pytest.raises(ValueError, match="expected a time"):
        profiles.seconds(time)


# --- Submission -------------------------------------------------------------------------------------------------------


def stand_in(folder, text):
    """An sbatch that does what `text` says, first on PATH."""
    path = folder / "sbatch"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def test_sbatch_is_given_the_script(tmp_path):
    environment = stand_in(tmp_path, f'echo "$@" > {tmp_path}/arguments; cat > {tmp_path}/script; echo 17')
    done = run("submit", "--wait", "--folder", tmp_path / "out", "--", "true", **environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "17\n", "")
    assert (tmp_path / "arguments").read_text() == "--parsable --wait\n"
    assert (tmp_path / "script").read_text() == run("render", "--folder", tmp_path / "out", "--", "true").stdout
    assert (tmp_path / "out").is_dir()


def test_what_sbatch_complains_of_is_one_line(tmp_path):
    said = "sbatch: error: Unable\nsbatch: error: Batch job submission failed: Invalid account"
    environment = stand_in(tmp_path, f"echo greetings; echo {shlex.quote(said)} >&2; exit 1")
    done = run("submit", "--folder", tmp_path / "out", "--", "true", **environment)
    assert (done.returncode, done.stderr) == (1, "Error: sbatch: Unable; Invalid account\n")


def test_a_job_that_is_refused_leaves_no_folder(tmp_path):
    environment = stand_in(tmp_path, "echo 'sbatch: error: no' >&2; exit 1")
    (tmp_path / "mine").mkdir()
    assert run("submit", "--folder", tmp_path / "mine/new/out", "--", "true", **environment).returncode == 1
    assert list((tmp_path / "mine").iterdir()) == []
    assert run("submit", "--folder", tmp_path / "mine", "--", "true", **environment).returncode == 1
    assert (tmp_path / "mine").is_dir()


def test_without_sbatch(tmp_path):
    said = refused("submit", "--folder", tmp_path / "out", "--", "true", PATH="")
    assert said == "sbatch is not on PATH: submit from a login node of the cluster"


# --- Signals ----------------------------------------------------------------------------------------------------------

PROGRAM = """
import signal, sys
told = {signal.SIGUSR1, signal.SIGTERM}
signal.pthread_sigmask(signal.SIG_BLOCK, told)
print("ready", flush=True)
signal.sigwait(told)
sys.exit(int(sys.argv[1]))
"""


def run_script(folder, profile, program, say):
    """Run a script with a stand-in for each command of SLURM, signalled once the program is ready."""
    for name, text in {
        "srun": 'while [[ $1 == --* ]]; do shift; done; [[ $* == *check-ranks* ]] || exec "$@"',
        "ibrun": '[[ $* == *check-ranks* ]] || "$@"',
        "scontrol": f'[[ $1 == requeue ]] && echo "$2" >>{folder}/requeued || echo JobState=RUNNING',
    }.items():
        (folder / name).write_text(f"#!/bin/bash\n{text}\n")
        (folder / name).chmod(0o755)
    script = folder / "script.sh"
    script.write_text(scripts.render(profile, [program]))
    variables = {"SLURM_JOB_ID": "17", "SLURM_NTASKS": "1", "SLURM_JOB_NODELIST": "here"}
    environment = {**os.environ, **variables, "PATH": f"{folder}:{os.environ['PATH']}", "VIRTUAL_ENV": ""}
    job = subprocess.Popen(
        ["bash", script], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    with job:
        while job.stdout.readline() != "ready\n":  # not that of the printed command
            pass
        say(job.pid)
        job.stdout.read()
    return job.returncode


@pytest.mark.parametrize(
    ("launcher", "whom"), [("srun", os.kill), ("ibrun", os.kill), ("srun", os.killpg)], ids=["srun", "ibrun", "all"]
)
def test_the_status_of_a_program_that_is_told_to_stop(tmp_path, launcher, whom):
    """It may end while bash is in its handler of the signal, and bash must not lose its status: many times."""
    profile = profiles.Profile(launcher=launcher, lines=[f"PATH={tmp_path}:$PATH"])
    number = signal.SIGUSR1 if whom is os.kill else signal.SIGTERM
    for _ in range(10):
        status = run_script(tmp_path, profile, [sys.executable, "-c", PROGRAM, "75"], lambda pid: whom(pid, number))
        assert status == 75
    assert (tmp_path / "requeued").read_text() == "17\n" * 10
    assert run_script(tmp_path, profile, [sys.executable, "-c", PROGRAM, "3"], lambda pid: whom(pid, number)) == 3
    assert (tmp_path / "requeued").read_text() == "17\n" * 10


@pytest.mark.parametrize(("starts_within", "status"), [(60, 75), (0, 138)])
def test_a_program_that_is_told_before_it_can_listen(tmp_path, starts_within, status):
    """It is ended by the signal, and has lost nothing if it had just been started."""
    deaf = 'import time; print("ready", flush=True); time.sleep(60)'
    profile = profiles.Profile(lines=[f"PATH={tmp_path}:$PATH"], starts_within=starts_within)
    told = run_script(tmp_path, profile, [sys.executable, "-c", deaf], lambda pid: os.kill(pid, signal.SIGUSR1))
    assert told == status
    assert (tmp_path / "requeued").exists() == (status == 75)


# --- Documentation ----------------------------------------------------------------------------------------------------


def test_the_commands_of_the_documentation(tmp_path):
    text = (ROOT / "docs" / "slurm.md").read_text()
    [profile] = re.findall(r"^```toml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (tmp_path / "cluster.toml").write_text(profile)
    commands = re.findall(r"^```\n(python -m pycollectives slurm .*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(commands) == 5
    environment = {**os.environ, **stand_in(tmp_path, "cat > script; bash -n script")}
    for command in commands:
        words = shlex.split(command.replace("\\\n", ""))[1:]
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=tmp_path, env=environment)
        assert (done.returncode, done.stderr) == (0, "")


def test_the_documentation_has_every_key():
    rows = re.findall(r"^\| (`.*?) \|", (ROOT / "docs" / "slurm.md").read_text(), re.MULTILINE)
    documented = {name.strip("[]") for row in rows for name in re.findall(r"`([^`]+)`", row)}
    assert {*profiles.KEYS} <= documented


# --- The check of ranks -----------------------------------------------------------------------------------------------


def test_the_right_number_of_ranks():
    done = run("check-ranks", 1)
    assert done.returncode == 0, done.stderr
    for name in ("ranks: 1", "ranks on hosts: ", "MPI library: ", "Python: ", "pycollectives: ", "mpi4py: "):
        assert name in done.stdout


@pytest.mark.parametrize(("number", "speaks"), [("0", True), ("1", False)])
def test_the_wrong_number_of_ranks(number, speaks):
    done = run("check-ranks", 4, SLURM_PROCID=number)
    assert (done.returncode, done.stdout) == (1, "")
    assert ("Error: expected 4 ranks (SLURM_NTASKS), but MPI.COMM_WORLD has 1: the launcher" in done.stderr) == speaks
    assert done.stderr.count("\n") == speaks


# --- Packaging --------------------------------------------------------------------------------------------------------


def test_an_installation_has_all_templates_and_profiles():
    settings = profiles.tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    data = settings["package-data"]
    packaged = {
        path
        for folder in ("profiles", "templates")
        for glob in data[f"pycollectives_slurm.{folder}"]
        for path in ROOT.glob(f"slurm/{folder}/{glob}")
    }
    assert packaged == {path for path in ROOT.glob("slurm/**/*") if path.is_file()}
    assert {"pycollectives.slurm", "pycollectives_slurm"} <= {*settings["packages"]}
