"""docs/results takes only results of a clean checkout, and keeps what it has of a measurement that fails."""

from __future__ import annotations

import itertools
import json
import runpy
import subprocess
import sys
from pathlib import Path

import click
import mpi4py
import pytest

mpi4py.rc.initialize = False

DOCS = Path(__file__).resolve().parents[3] / "docs"
sys.path.insert(0, str(DOCS))

import measurements  # noqa: E402
from measurements import (  # noqa: E402
    MEASUREMENTS,
    RESULTS,
    UncleanError,
    collected,
    keep_ci,
    require_clean,
    require_named,
)

RECORD = '{"bench": "skew", "commit": "0123456789ab", "mpi": "Open MPI v5.0.11", "machine": "AMD EPYC, 2 cores, Linux"}'


BENCH = DOCS.parent / "bench"
sys.path.insert(0, str(BENCH))


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.org"]
    command = ["git", *identity, "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "checkout"
    (root / "csrc").mkdir(parents=True)
    (root / "csrc" / "a.cc").write_text("int a;\n")
    (root / "README.md").write_text("A page\n")
    git(root, "init", "--quiet")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "-m", "first")
    return root


@pytest.mark.parametrize("name", MEASUREMENTS)
def test_the_options_of_a_measurement_exist(name):
    script, *options = MEASUREMENTS[name].script
    path = DOCS.parent / script
    if path.parent != BENCH:
        assert path.is_file()
        return
    if path.stem == "overlap":
        pytest.importorskip("torch")
    if any("torchft" in option for option in options):
        pytest.importorskip("torchft")
    made = runpy.run_path(str(path)).values()
    (command,) = (each for each in made if isinstance(each, click.Command) and each.name == path.stem)
    assert command.make_context(path.stem, options).params


def test_both_activations_are_measured_where_each_rank_is_a_node():
    for activation in ("dissemination", "tree"):
        command = MEASUREMENTS[f"hosts-skew-{activation}"].command(Path("lines"))
        assert command[:2] == ["tools/hosts", "2x4"]
        options = dict(itertools.pairwise(command))
        assert (options["--activation"], options["--ranks-per-node"]) == (activation, "1")


def test_a_clean_checkout_whose_sources_were_built_is_measured(checkout):
    built = git(checkout, "rev-parse", "HEAD")
    require_clean(checkout, "0.1.0", built)
    (checkout / "README.md").write_text("Another page\n")
    git(checkout, "commit", "--quiet", "-am", "a page, of which nothing is built")
    require_clean(checkout, "0.1.0", built)


def test_what_cannot_be_named_by_a_commit_is_not_measured(checkout, tmp_path):
    built = git(checkout, "rev-parse", "--short=12", "HEAD")
    with pytest.raises(UncleanError, match="its version is 0\\+unknown"):
        require_clean(checkout, "0+unknown", built)
    for other in (f"{built}-dirty", "unknown", "0" * 40):
        with pytest.raises(UncleanError, match=f"built from {other}, .*`make install`"):
            require_clean(checkout, "0.1.0", other)
    (checkout / "new.txt").write_text("")
    with pytest.raises(UncleanError, match=r"without changes; commit or remove: new\.txt"):
        require_clean(checkout, "0.1.0", built)
    (checkout / "new.txt").unlink()
    (checkout / "csrc" / "a.cc").write_text("int b;\n")
    with pytest.raises(UncleanError, match=r"without changes; commit or remove: csrc/a\.cc"):
        require_clean(checkout, "0.1.0", built)
    git(checkout, "commit", "--quiet", "-am", "second")
    with pytest.raises(UncleanError, match=f"built from {built}, but the sources are at"):
        require_clean(checkout, "0.1.0", built)
    with pytest.raises(UncleanError, match="git checkout"):
        require_clean(tmp_path, "0.1.0", built)


@pytest.mark.parametrize(
    "text",
    [
        "# pycollectives Idle Cost v0+unknown",
        "# Open MPI v5.0.11, commit bfd536b322d1-dirty",
        "# Open MPI v5.0.11, commit None",
        RECORD.replace("0123456789ab", "0123456789ab-dirty"),
        RECORD.replace('"0123456789ab"', "null"),
    ],
)
def test_a_result_without_a_clean_version_and_commit_is_refused(text):
    require_named(RECORD)
    with pytest.raises(UncleanError, match="expected a clean version and commit"):
        require_named(f"{RECORD}\n{text}\n")


def test_of_a_measurement_that_fails_what_was_there_is_kept(tmp_path, capsys):
    results = tmp_path / "results"
    results.mkdir()
    for name in ("good", "bad", "dirty"):
        (results / f"{name}.txt").write_text("before")

    def good(folder: Path) -> None:
        (folder / "good.txt").write_text(RECORD)

    def bad(folder: Path) -> None:
        (folder / "bad.txt").write_text("half of a table")
        subprocess.run(["false"], check=True)

    def dirty(folder: Path) -> None:
        (folder / "dirty.txt").write_text(RECORD.replace("89ab", "89ab-dirty"))

    with collected(results) as everything:
        for make in (bad, dirty, good):
            everything.add(make.__name__, make)
        assert (results / "good.txt").read_text() == "before"  # the checkout stays clean meanwhile
    assert everything.failed == ["bad", "dirty"]
    assert (results / "good.txt").read_text() == RECORD
    assert [(results / f"{name}.txt").read_text() for name in ("bad", "dirty")] == ["before", "before"]
    assert capsys.readouterr().err.count("the previous results stay") == 2


def test_what_was_measured_before_an_interruption_is_kept(tmp_path):
    def interrupted(folder: Path) -> None:
        (folder / "second.txt").write_text(RECORD)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), collected(tmp_path / "results") as everything:
        everything.add("first", lambda folder: (folder / "first.txt").write_text(RECORD))
        everything.add("second", interrupted)
    assert [path.name for path in (tmp_path / "results").iterdir()] == ["first.txt"]


def test_measuring_writes_the_table_and_the_lines_of_each(tmp_path, monkeypatch):
    commands = []

    def run(command: list[str]) -> str:
        commands.append(command)
        if "bench/idle.py" in command:
            raise subprocess.CalledProcessError(1, command)
        Path(command[-1]).write_text(RECORD)
        return "# a table\n"

    monkeypatch.setattr(measurements, "run", run)
    monkeypatch.setattr(measurements, "RESULTS", tmp_path)
    assert measurements.measure(["skew-8", "idle-8", "baselines"]) == ["idle-8"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "baselines.jsonl",
        "baselines.txt",
        "skew-8.jsonl",
        "skew-8.txt",
    ]
    assert commands[0][:4] == ["tools/mpirun", "-n", "8", sys.executable]
    assert commands[2][:2] == [sys.executable, "bench/baselines.py"]
    for measurement in MEASUREMENTS.values():
        assert (DOCS.parent / measurement.script[0]).is_file()


def test_the_age_of_a_result_is_counted_in_commits(tmp_path):
    def git(*arguments: str) -> str:
        user = ["-c", "user.name=a", "-c", "user.email=a@b"]
        command = ["git", "-C", str(tmp_path), *user, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def commit(file: str) -> str:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(f"{len(list(tmp_path.rglob('*')))}")
        git("add", ".")
        git("commit", "-qm", file)
        return git("rev-parse", "--short=12", "HEAD").strip()

    git("init", "-q")
    first = commit("csrc/a.cc")
    second = commit("docs/a.md")
    commit("csrc/b.cc")
    commit("pycollectives/a.py")
    results = tmp_path / "results"
    results.mkdir()
    for name, of in {"old.jsonl": first, "new.json": second, "foreign.json": "0123456789ab"}.items():
        (results / name).write_text(f'{{"commit": "{of}"}}\n')
    assert {name: since for since, _, name in measurements.ages(results, tmp_path)} == {
        "old.jsonl": 2,
        "new.json": 2,
        "foreign.json": -1,
    }


def test_of_ci_only_a_run_that_passed_in_a_clean_checkout_is_kept(tmp_path):
    record = {
        "list": "ci",
        "commit": "0123456789ab",
        "passed": True,
        "steps": [
            {"title": "build", "tests": []},
            {"title": "units", "tests": ["### units", "== 3 passed in 1.0s =="]},
            {"title": "MPI", "tests": ["### MPI, 2 ranks: flat", "### MPI, 2 ranks, flat", "== 4 passed in 1.0s =="]},
            {"title": "more", "tests": ["### a", "== 1 passed in 1s ==", "### b", "== 2 passed in 1s =="]},
        ],
    }
    path, results = tmp_path / "ci.json", tmp_path / "results"
    results.mkdir()
    for wrong, message in (
        ({"commit": "0123456789ab-dirty"}, "clean version"),
        ({"passed": False}, "this one did not"),
    ):
        path.write_text(json.dumps({**record, **wrong}))
        with pytest.raises(UncleanError, match=message):
            keep_ci(path, results)
    assert not list(results.iterdir())
    path.write_text(json.dumps(record))
    keep_ci(path, results)
    assert json.loads((results / "ci.json").read_text()) == record
    assert (results / "test.txt").read_text().splitlines() == [
        "### units",
        "== 3 passed in 1.0s ==",
        "### MPI",
        "== 4 passed in 1.0s ==",
        "### more",
        "### a",
        "== 1 passed in 1s ==",
        "### b",
        "== 2 passed in 1s ==",
    ]


@pytest.mark.parametrize("path", sorted(RESULTS.rglob("*.*")), ids=lambda path: str(path.relative_to(RESULTS)))
def test_what_is_there_names_what_was_measured(path):
    require_named(path.read_text())
