"""The steps of CI: tools/steps.py ends at the first that fails, hangs or is slow, and can run the lists in .ci."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TOOL = ROOT / "tools" / "steps.py"

spec = importlib.util.spec_from_file_location("steps", TOOL)
steps = importlib.util.module_from_spec(spec)
sys.modules["steps"] = steps  # for dataclasses
spec.loader.exec_module(steps)


class Outcome:
    """What a run of a list printed, and its record."""

    def __init__(self, root: Path, lines: str, *title: str) -> None:
        (root / ".ci").mkdir(exist_ok=True)
        (root / ".ci" / "some.steps").write_text(lines)
        program = f"import pathlib, runpy, sys; sys.exit(runpy.run_path({str(TOOL)!r})['main'](sys.argv[2:], "
        program += "pathlib.Path(sys.argv[1])))"
        command = [sys.executable, "-c", program, str(root), "some", *title]
        begin = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        self.seconds = time.monotonic() - begin
        self.status, self.out = done.returncode, done.stdout + done.stderr
        record = root / "build" / "some.json"
        self.record = json.loads(record.read_text()) if record.exists() else {"steps": []}
        self.ran = {step["title"]: step["status"] for step in self.record["steps"]}


def test_steps_run_in_order_and_their_times_are_kept(tmp_path):
    lines = "# a comment\n60 first (one): echo one >file\n\n60 second: cat file; sleep 0.5  # another\n"
    lines += f"60 busy: {sys.executable} -c 'while __import__(\"time\").process_time() < 0.5: pass'\n"
    outcome = Outcome(tmp_path, lines)
    assert outcome.status == 0, outcome.out
    assert "=== second\none\n" in outcome.out
    assert outcome.ran == {"first (one)": 0, "second": 0, "busy": 0}
    first, second, busy = outcome.record["steps"]
    assert first["seconds"] < 0.5 <= second["seconds"] < 30
    assert second["limit"] == 60
    assert second["cpu_seconds"] < 0.5 <= busy["cpu_seconds"] < 30
    assert outcome.record["passed"]
    assert re.search(r"^ +\d+ s of +60 s, +\d+ s  second$", outcome.out, re.MULTILINE)


def test_it_ends_at_the_first_failure_and_shows_what_failed(tmp_path):
    outcome = Outcome(tmp_path, "60 good: true\n60 bad: echo 'FAILED a test'; echo more; exit 3\n60 never: touch ran\n")
    assert outcome.status == 1
    assert outcome.ran == {"good": 0, "bad": 3}
    assert not outcome.record["passed"]
    assert not (tmp_path / "ran").exists()
    assert outcome.out.rstrip().endswith("=== FAILED: bad (status 3)\nFAILED a test")


def test_a_step_ends_at_one_and_a_half_times_its_limit_with_all_its_processes(tmp_path):
    """Also those that ignore a signal to the group, because they are in one of their own."""
    mark = f"3600.{time.monotonic_ns()}"
    outcome = Outcome(tmp_path, f"1 slow: timeout 100 sleep {mark} & wait\n60 never: true\n")
    assert outcome.status == 1
    assert outcome.ran == {"slow": "too slow"}
    assert "1.5 times its limit of 1 s" in outcome.out
    assert 1.5 <= outcome.record["steps"][0]["seconds"] < 20
    assert mark not in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout


def test_nothing_is_read(tmp_path):
    assert Outcome(tmp_path, "60 reads: read -r line; test -z $line\n").status == 0


BESIDE = "& 60 beside: until test -e go; do sleep 0.05; done; echo went\n60 main: touch go; sleep 0.2\n"


def test_steps_run_beside_each_other(tmp_path):
    """The one beside ends only because the one after it begins."""
    for end in ("", "wait beside\n60 last: true\n"):
        (tmp_path / "go").unlink(missing_ok=True)
        outcome = Outcome(tmp_path, BESIDE + end)
        assert outcome.status == 0, outcome.out
        assert "=== beside\nwent\n" in outcome.out
        assert [step["beside"] for step in outcome.record["steps"]][:2] == [True, False]


def test_a_failure_beside_ends_the_run_at_once(tmp_path):
    outcome = Outcome(tmp_path, "& 60 beside: echo why; exit 4\n60 main: sleep 50\n")
    assert outcome.status == 1
    assert outcome.seconds < 30
    assert "=== beside\nwhy\n" in outcome.out
    assert "=== FAILED: beside (status 4)" in outcome.out


def test_what_pytest_counts_is_kept(tmp_path):
    printed = "### units\\n...\\n=== 3 passed, 2 deselected in 0.10s ===\\n### passed"
    outcome = Outcome(tmp_path, f"60 units: printf '{printed}'\n")
    assert outcome.record["steps"][0]["tests"] == [
        "### units",
        "=== 3 passed, 2 deselected in 0.10s ===",
        "### passed",
    ]


def test_a_run_may_begin_in_the_middle(tmp_path):
    lines = "& 60 first: touch first\n60 second: true\nwait first\n60 third: true\n"
    assert Outcome(tmp_path, lines, "second").ran == {"second": 0, "third": 0}
    assert "expected the title of a step, got 'odd'" in Outcome(tmp_path, lines, "odd").out


@pytest.mark.parametrize("line", ["first: true", "60 first", "60 : true", "wait first", "60 a: true\nwait a"])
def test_what_is_no_list_is_refused(line):
    with pytest.raises(ValueError, match="expected"):
        steps.parse(line)


LISTS = {path.stem: steps.parse(path.read_text()) for path in (ROOT / ".ci").glob("*.steps")}


@pytest.mark.parametrize("name", ["ci", "nightly"])
def test_the_targets_of_a_list_are_those_of_the_makefile(name):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    suites = set(re.findall(r"^    ([a-z |]+)\)", (ROOT / "tests" / "run.sh").read_text(), re.MULTILINE))
    suites = {suite for each in suites for suite in each.split(" | ")}
    for step in LISTS[name]:
        if isinstance(step, steps.Step):
            words = re.sub(r"\w+=(\"[^\"]*\"|\S*)", "", step.command).split()
            if "make" in words:
                assert set(words[words.index("make") + 1 :]) <= targets, step
            named = re.findall(r"SUITES=(\w+)", step.command)
            assert set(named) <= suites, step


def test_ci_is_done_before_it_is_killed():
    """After 90 minutes, even if each step takes as long as it may."""
    one_after_another = [step.limit for step in LISTS["ci"] if isinstance(step, steps.Step) and not step.beside]
    assert steps.STRETCH * sum(one_after_another) < 90 * 60
