"""`bench/compare.py` with this environment as both builds: real jobs of both, in alternation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from launcher import environment, launcher, run

from pycollectives.diagnostics.provenance import commit_of

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.skipif(not os.environ.get("LONG"), reason="takes as long as four jobs: LONG=1"),
]

BENCH = Path(__file__).resolve().parents[2] / "bench"


def built_from() -> str:
    """The commit that is installed, if the checkout knows it."""
    from pycollectives._version import commit

    commit = commit.removesuffix("-dirty")
    command = ["git", "-C", str(BENCH), "cat-file", "-e", commit]
    if commit_of(BENCH.parent) is None or subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("needs a git checkout of what is installed")
    return commit


def test_a_build_is_compared_with_itself(tmp_path):
    path = tmp_path / "compare.jsonl"
    mpi = "openmpi" if len(launcher()) > 1 else "mpich"
    options = ["--benchmarks", "latency", "--ranks", "2", "--bytes", "8", "--passes", "2", "--slower-by", "1e6"]
    folders = ["--environment", sys.prefix, "--other-environment", sys.prefix, "--mpi", mpi, "--json", str(path)]
    command = [sys.executable, str(BENCH / "compare.py"), built_from(), *options, *folders]
    command = ["env", "--chdir", str(BENCH), *command]
    outcome = run(command, limit=380, env=environment())
    assert outcome.status == 0
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [record["cell"] for record in records] == ["solo 8", "majority 8", "quorum:1 8", "full 8", "geometric mean"]
    for record in records:
        assert all(value > 0 for value in [*record["here"], *record["other"]])
        assert (len(record["here"]), len(record["other"]), record["round"]) == (2, 2, 1)
    rows = [line for line in outcome.out.splitlines() if not line.startswith("#")]
    assert [row.split()[:3] for row in rows[:1]] == [["latency", "2", "solo"]]
