"""Tests marked `nightly` are left out, unless NIGHTLY is set."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def collected(**environment: str) -> set[str]:
    """Return the tests of the soaks that would run."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    clean = {name: value for name, value in os.environ.items() if name != "NIGHTLY"}
    done = subprocess.run(
        [*command, "tests/launch/test_soak.py"], cwd=ROOT, env={**clean, **environment}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return set(re.findall(r"::(\w+)", done.stdout))


def test_they_are_left_out_unless_all_are_asked_for():
    in_ci = collected()
    assert in_ci == collected(NIGHTLY="")
    assert collected(NIGHTLY="1") == in_ci | {"test_a_few_thousand"} != in_ci
