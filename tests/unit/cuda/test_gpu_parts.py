"""The run on a GPU: its limits, its record when parts fail, hang or are killed, and the size of what is carried."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
GPU = ROOT / "tests" / "gpu"
sys.path.insert(0, str(GPU))

from parts import Plan  # noqa: E402
from record import RESERVE, SECONDS, summary_of  # noqa: E402

PARTS = {rehearsed: Plan([1, 2, 4], 100.0, rehearsed, "bin/python").parts() for rehearsed in (False, True)}
HANGS = "trap '' TERM INT; (setsid sleep {} &); sleep {}"
RUN = f"""
import json, os, sys
from pathlib import Path
sys.path.insert(0, {str(GPU)!r})
import record
from parts import Part
folder, seconds, parts = sys.argv[1:]
run = record.Run(Path(folder), record.new_record(True), record.RESERVE + float(seconds), dict(os.environ))
parts = [Part(name, section, limit, ["sh", "-c", text]) for name, section, limit, text in json.loads(parts)]
sys.exit(0 if run.go(parts) else 1)
"""


def keeps(check: str) -> str:
    """A command that writes a record."""
    return f"""echo '{{"check": "{check}"}}' >>{{results}}/records"""


def start(folder: Path, seconds: float, *parts: tuple[str, str, int, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", RUN, str(folder), str(seconds), json.dumps(parts)])


def record_of(folder: Path) -> dict:
    return json.loads((folder / "gpu.json").read_text())


def statuses(record: dict) -> list[str]:
    return [part["status"] for part in record["parts"]]


def sleepers(seconds: str) -> list[int]:
    """Processes that still sleep for so long."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().split(b"\0")[:2] == [b"sleep", seconds.encode()]:
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def test_limits_add_up_to_at_most_eight_minutes():
    (outer,) = re.findall(r"^seconds=(\d+)$", (GPU / "offline.sh").read_text(), re.MULTILINE)
    assert int(outer) == SECONDS <= 8 * 60
    for parts in PARTS.values():
        assert sum(part.limit for part in parts) + RESERVE <= SECONDS
        assert min(part.limit for part in parts) > 0


@pytest.mark.parametrize("rehearsed", [False, True])
def test_parts_are_in_order_of_value(rehearsed):
    parts = PARTS[rehearsed]
    sections = [part.section for part in parts]
    assert sections == sorted(sections, key=["build", "probe", "tests", "benchmarks"].index)
    checks = [word for part in parts for word in part.command if part.section == "probe" and word.isalpha()]
    assert checks[:4] == ["kernels", "streams", "processes", "arrays"]
    launched = [part.command[2] for part in parts if "tests/gpu/test_allreduce_on_a_gpu.py" in part.command]
    assert launched == ["1", "2", "4"]
    programs = {word for part in parts for word in part.command if re.fullmatch(r"[\w/]+\.(py|sh)", word)}
    assert all((ROOT / name).exists() for name in programs)
    files = {name for name in programs if "test_" in name}
    assert {str(path.relative_to(ROOT)) for path in GPU.glob("test_*.py")} <= files


def test_parts_that_fail_or_hang_do_not_stop_the_next(tmp_path):
    """Nothing of a hanging part is left, in whatever session it is."""
    marker = f"{60 + os.getpid() / 1e7:.7f}"
    run = start(
        tmp_path, 60,
        ("hangs", "probe", 2, keeps("one") + "; " + HANGS.format(marker, marker)), ("fails", "tests", 9, "exit 3"),
        ("half a line", "probe", 9, "printf '{' >{results}/records"), ("none", "probe", 9, "true"),
        ("broken", "probe", 9, "echo '{' >{results}/records"),
        ("wrong", "probe", 9, """echo '{"check": "wrong", "right": false}' >{results}/records"""),
        ("good", "probe", 9, keeps("two")),
    )  # fmt: skip
    assert run.wait(50) == 1
    record = record_of(tmp_path)
    assert statuses(record) == ["stopped at its limit", *5 * ["failed"], "done"]
    assert record["parts"][0]["seconds"] < 10
    assert [found["check"] for found in record["probe"]] == ["one", "wrong", "two"]
    assert record["parts"][4]["error"].startswith("JSONDecodeError: ")
    assert sleepers(marker) == []
    assert "+ sh -c exit 3\n" in (tmp_path / "log.txt").read_text()


def test_a_run_ends_in_time_whatever_hangs(tmp_path):
    """A part that ends early leaves its time to the next one, within the total."""
    begin = time.monotonic()
    parts = [("quick", "probe", 100, keeps("one")), *((f"{n}", "probe", 100, "sleep 100") for n in range(2))]
    run = start(tmp_path, 4, *parts)
    assert run.wait(50) == 1
    assert time.monotonic() - begin < 4 + RESERVE
    assert statuses(record_of(tmp_path)) == ["done", "stopped at its limit", "not started"]


def test_without_a_build_there_is_nothing_to_run(tmp_path):
    assert start(tmp_path, 60, ("build", "build", 9, "false"), ("probe", "probe", 9, keeps("one"))).wait(50) == 1
    assert statuses(record_of(tmp_path)) == ["failed"]


def test_all_is_well(tmp_path):
    line = """echo '{"test": "a", "rank": 0, "outcome": "passed"}' >{results}/records"""
    assert start(tmp_path, 60, ("build", "build", 9, "true"), ("tests", "tests", 9, line)).wait(50) == 0
    record = record_of(tmp_path)
    assert statuses(record) == ["done", "done"]
    assert record["tests"] == [{"name": "tests", "right": True, "tests": 1, "passed": 1, "wrong": {}}]


def test_outcomes_of_tests_are_kept_when_one_of_them_is_killed(tmp_path):
    tests = tmp_path / "test_some.py"
    tests.write_text(
        "import os, signal, pytest\n"
        "def test_good(): pass\n"
        "def test_bad(): assert 0\n"
        "@pytest.fixture\n"
        "def broken(): assert 0\n"
        "def test_broken(broken): pass\n"
        "def test_skipped(): pytest.skip('no reason')\n"
        "def test_killed(): os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    path = tmp_path / "records"
    environment = {**os.environ, "PYTHONPATH": str(GPU), "OMPI_COMM_WORLD_RANK": "3"}
    command = ["pytest", "-q", "-p", "outcomes", "-p", "no:cacheprovider", "--outcomes", str(path), str(tests)]
    subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, timeout=100, check=False)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    outcomes = {"bad": "failed", "broken": "error", "killed": "started"}
    assert summary_of("some", lines, may_skip=True) == {
        "name": "some", "right": False, "tests": 5, "passed": 1, "failed": 1, "error": 1, "skipped": 1, "started": 1,
        "wrong": {f"test_some.py::test_{name}, rank 3": outcome for name, outcome in outcomes.items()},
    }  # fmt: skip


@pytest.mark.parametrize("may_skip", [False, True])
def test_a_skipped_test_is_right_only_in_a_rehearsal(may_skip):
    lines = [{"test": "a", "rank": 0, "outcome": outcome} for outcome in ("started", "skipped")]
    assert summary_of("some", lines, may_skip=may_skip)["right"] is may_skip
    assert not summary_of("none", [], may_skip=may_skip)["right"]


def test_the_record_of_each_part_is_there_after_a_kill(tmp_path):
    """Of the run itself, with which its programs end."""
    marker = f"{61 + os.getpid() / 1e7:.7f}"
    run = start(tmp_path, 60, ("one", "probe", 9, keeps("one")), ("two", "probe", 50, f"exec sleep {marker}"))
    until = time.monotonic() + 50
    while not sleepers(marker):
        assert time.monotonic() < until
        time.sleep(0.01)
    run.send_signal(signal.SIGKILL)
    run.wait(50)
    record = record_of(tmp_path)
    assert statuses(record) == ["done", "running"]
    assert record["probe"] == [{"check": "one"}]
    while sleepers(marker):
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.parametrize(("megabytes", "status"), [(1, 0), (64, 1)])
def test_no_more_is_packed_than_can_be_carried(tmp_path, megabytes, status):
    python = tmp_path / "python"  # which downloads one wheel
    python.write_text(
        f"""#!/bin/sh
        while [ "$1" != --dest ]; do shift; done
        truncate -s {megabytes}M "$2/a.whl"
        """
    )
    python.chmod(0o755)
    carried = tmp_path / "carried"
    environment = {**os.environ, "PYTHON": str(python), "CARRIED": str(carried)}
    done = subprocess.run([GPU / "offline.sh", "pack"], env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == status, done.stderr
    assert re.search(r": 1 wheels; with the checkout \d+ MiB\n", done.stdout)
    assert ("more than the 64 MiB that are carried" in done.stdout) == bool(status)
    assert re.fullmatch(r"[0-9a-f]{12}(-dirty)?\n", (carried / "COMMIT").read_text())
