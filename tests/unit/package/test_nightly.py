"""Tests marked `nightly` are left out, unless NIGHTLY is set."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from nightly import in_turn, nightly_unless

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


def in_ci(parameters):
    """Return the values that are not marked `nightly`."""
    return [one for one in parameters if not hasattr(one, "marks")]


def test_cases_are_marked():
    cases = nightly_unless(lambda case: case == 2, [1, 2, 3])
    assert in_ci(cases) == [2]
    assert [one.values for one in cases if one != 2] == [(1,), (3,)]
    assert nightly_unless(lambda case: case[0] == 2, [(1, "a"), (2, "b")])[0].values == (1, "a")
    assert {mark.name for one in cases if one != 2 for mark in one.marks} == {"nightly"}


def test_each_case_and_each_of_the_others_is_in_ci():
    pairs = in_turn(["a", "b", ("c", 1), "d"], ["x", "y", "z"])
    assert len(pairs) == 12
    assert in_ci(pairs) == [("a", "x"), ("b", "y"), ("c", 1, "z"), ("d", "x")]
    assert in_ci(in_turn(["a", "b"], ["x", "y", "z"])) == [("a", "x"), ("a", "z"), ("b", "y")]
    assert {one.values for one in pairs if hasattr(one, "marks")} >= {("a", "y"), ("c", 1, "x"), ("d", "z")}
