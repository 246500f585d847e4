"""`bench/groups.py`, `bench/grace.py` and `bench/top.py` on a few ranks: they verify and store their measurements."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from launcher import Outcome, launcher, run
from nightly import nightly_unless
from wrong_use import outcomes_of_wrong_use

BENCH = Path(__file__).resolve().parents[2] / "bench"


def groups(ranks: int, *options: object) -> Outcome:
    return bench("groups.py", ranks, *options)


def bench(script: str, ranks: int, *options: object) -> Outcome:
    command = [*launcher(), "-n", str(ranks), sys.executable, str(BENCH / script), *map(str, options)]
    outcome = run(command, limit=100)
    assert not outcome.hung
    return outcome


@pytest.mark.parametrize("ranks_per_node", nightly_unless(lambda number: number == 2, [1, 2]))
def test_every_generator_is_measured_and_verified(tmp_path, ranks_per_node):
    path = tmp_path / "groups.jsonl"
    options = ("--model-bytes", 4e4, "--compute-ms", 5, "--iterations", 15, "--slowdown", "1:3")
    outcome = groups(4, "--generators", "all", *options, "--ranks-per-node", ranks_per_node, "--json", path)
    assert outcome.status == 0
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [record["generator"] for record in records] == [
        "allreduce",
        "random",
        "random-unbuffered",
        "static",
        "smart",
        "smart-flat",
        "punctual",
    ]
    for record in records:
        assert record["verified"]
        assert (record["ranks"], record["ranks_per_node"], record["slowdown"]) == (4, ranks_per_node, "1:3")
        assert 0 < record["iterations_per_s"] <= 1.01 * record["ideal_iterations_per_s"]
        assert 0 <= record["sync_fraction"] <= 1
        assert len(record["iterations_per_s_of"]) == 4
    assert records[0]["speedup"] == 1


def test_what_would_be_measured(tmp_path):
    outcome = groups(2, "--list", "--generators", "smart", "--slowdown", "1:5", "--json", tmp_path / "none")
    assert outcome.status == 0
    assert outcome.out.splitlines() == [
        "# ranks 2",
        "allreduce 9230000 bytes, slowdown 1:5",
        "smart 9230000 bytes, slowdown 1:5",
    ]
    assert not list(tmp_path.iterdir())


WRONG = [
    (["--slowdown", "2:5"], "expected a rank below 2"),
    (["--slowdown", "fast"], "expected RANK:FACTOR"),
    (["--generators", "clever"], "unknown generator 'clever'"),
    (["--model-bytes", "7"], "positive multiples of 4"),
]


def test_wrong_use():
    outcomes = outcomes_of_wrong_use(2, str(BENCH / "groups.py"), [options for options, _ in WRONG])
    for outcome, (_, message) in zip(outcomes, WRONG, strict=True):
        assert outcome.status == 2
        assert message in " ".join(outcome.err.split())
        assert outcome.err.count("Usage:") == 1


def test_grace(tmp_path):
    path = tmp_path / "cells.jsonl"
    outcome = bench("grace.py", 4, "--iterations", 4, "--json", path)
    assert outcome.status == 0, outcome
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(records) == 2 * 3 * 10
    assert [record["grace"] for record in records[9::10]] == ["auto"] * 6
    assert all(1 <= record["contributors"] <= 4 for record in records), "ranks that flush arrive without data"


def test_top(tmp_path):
    path = tmp_path / "cells.jsonl"
    outcome = bench("top.py", 2, "--seconds", 3, "--iterations", 1, "--json", path)
    assert outcome.status == 0, outcome
    (record,) = map(json.loads, path.read_text().splitlines())
    assert record["steps_per_s"] > 0
    assert record["watched_steps_per_s"] > 0
