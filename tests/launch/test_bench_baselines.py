"""`bench/baselines.py` with Open MPI alone, in the environment of the tests: it measures, compares and writes."""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from launcher import environment, launcher, run

pytestmark = pytest.mark.timeout(200)

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.fixture
def environments(tmp_path: Path) -> Path:
    """One for Open MPI that is this one, so that nothing is installed."""
    if len(launcher()) == 1:
        pytest.skip("needs Open MPI")
    folder = tmp_path / "environments" / "openmpi"
    (folder / "bin").mkdir(parents=True)
    python = folder / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    (folder / "bin" / "mpirun").symlink_to(launcher()[0])
    packages = ["openmpi>=5,<6", *(f"{name}=={version(name)}" for name in ("numpy", "mpi4py"))]
    (folder / "packages.txt").write_text("\n".join(packages) + "\n")
    return folder.parent


@pytest.mark.nightly
def test_full_is_compared_with_the_best_setting_of_open_mpi(environments, tmp_path):
    path = tmp_path / "baselines.jsonl"
    options = ["--ranks", "2", "--bytes", "8,65536", "--mpis", "openmpi", "--runs", "1", "--iterations", "4"]
    command = [sys.executable, str(BENCH / "baselines.py"), *options]
    command += ["--environments", str(environments), "--json", str(path)]
    outcome = run(command, limit=180, env=environment())
    assert outcome.status == 0
    assert "2 ranks, run 1 of 1\n" in outcome.err
    assert "\x1b" not in outcome.out + outcome.err
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [record["bytes"] for record in records] == [8, 65536]
    for record in records:
        assert (record["bench"], record["ranks"], record["runs"], record["verified"]) == ("baselines", 2, 1, True)
        measured = record["mean_us_of"]
        assert len(measured) == 8
        assert all(measured.values()), measured
        assert record["baseline_us"]["mean"] == min(measured.values()) == measured[record["baseline"]]
        assert record["default_us"]["mean"] == measured["Open MPI, default"]
        ratio = record["baseline_us"]["mean"] / record["latency_us"]["mean"]
        assert record["speedup"] == pytest.approx(ratio, rel=0.01, abs=1e-4)
    *_, small, large, last = outcome.out.splitlines()
    assert (small.split()[0], large.split()[0]) == ("8", "65536")
    assert small.endswith(records[0]["baseline"])
    assert last.startswith("# geometric mean of the speedups")


def test_under_mpirun_it_says_that_it_starts_jobs_itself():
    outcome = run([*launcher(), "-n", "2", sys.executable, str(BENCH / "baselines.py"), "--list"], limit=60)
    assert outcome.status != 0
    assert "start this benchmark without mpirun" in outcome.err


def test_what_would_be_measured():
    command = [sys.executable, str(BENCH / "baselines.py"), "--list", "--ranks", "3", "--mpis", "mpich"]
    outcome = run(command, limit=60, env=environment())
    assert outcome.status == 0
    assert outcome.out.splitlines() == [
        "# ranks 3",
        "Full()",
        "MPICH, default",
        "MPICH, release-gather",
        "MPICH, yields at once",
        "MPICH, release-gather, yields at once",
    ]
