"""`bench/hop.py` on a few ranks: speeds and gaps of Hop's modes, beside what they are at no cost."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from launcher import Outcome, launcher, run
from nightly import nightly_unless
from wrong_use import outcomes_of_wrong_use

BENCH = Path(__file__).resolve().parents[2] / "bench"


def hop(ranks: int, *options: object) -> Outcome:
    command = [*launcher(), "-n", str(ranks), sys.executable, str(BENCH / "hop.py"), *map(str, options)]
    outcome = run(command, limit=100)
    assert not outcome.hung
    return outcome


@pytest.mark.parametrize(
    ("ranks", "ranks_per_node", "graph", "diameter"),
    nightly_unless(lambda case: case[1] == 2, [(4, 4, "ring", 2), (4, 2, "two-level", 3), (3, 1, "ring-based", 1)]),
)
def test_every_mode_is_measured(tmp_path, ranks, ranks_per_node, graph, diameter):
    path = tmp_path / "hop.jsonl"
    modes = ["standard", "notify-ack", "backup:1", "staleness:2", "hybrid:1:2", "skip:4", "staleness:2+skip:4"]
    options = ("--compute-ms", 5, "--model-bytes", 4e4, "--iterations", 16, "--ranks-per-node", ranks_per_node)
    slow = ("--slowdown", "1:10")  # by so much that other load of the machine does not make up for it
    outcome = hop(ranks, "--mode", ",".join(modes[1:]), "--graph", graph, *slow, *options, "--json", path)
    assert outcome.status == 0
    measured = [json.loads(line) for line in path.read_text().splitlines()]
    assert [record["mode"] for record in measured] == modes
    for record in measured:
        assert (record["ranks"], record["ranks_per_node"], record["graph"]) == (ranks, ranks_per_node, graph)
        assert record["verified"]
        # Who is later than in virtual time skips more; the others compute in every iteration.
        most = 1000 / record["compute_ms"] if "skip" in record["mode"] else record["ideal_iterations_per_s"]
        assert 0 < record["iterations_per_s"] < 1.1 * most, record
        assert 0 <= record["waiting_fraction"] <= 1
        assert record["skipped"] == 0 or "skip" in record["mode"], record
    gaps = {record["mode"]: record["max_gap"] for record in measured}
    assert gaps["standard"] <= diameter, "Theorem 1: no more than the distance"
    assert measured[5]["skipped"] > 0, "one of the ranks is 10 times slower"
    assert measured[5]["ideal_speedup"] > 1.2, measured[5]


def test_the_serial_graph_is_slower(tmp_path):
    """Nothing travels while a rank computes, so that one slow rank of four delays its neighbors in each iteration."""
    measured = {}
    for computation in ("parallel", "serial"):
        path = tmp_path / f"{computation}.jsonl"
        options = ("--computation", computation, "--mode", "standard", "--graph", "ring", "--slowdown", "random:8")
        outcome = hop(4, *options, "--compute-ms", 10, "--model-bytes", 4e4, "--iterations", 40, "--json", path)
        assert outcome.status == 0
        assert f"computation {computation}" in outcome.out
        (measured[computation],) = (json.loads(line) for line in path.read_text().splitlines())
    assert [record["computation"] for record in measured.values()] == ["parallel", "serial"]
    ideal = {name: record["ideal_iterations_per_s"] for name, record in measured.items()}
    assert ideal["serial"] < 0.9 * ideal["parallel"]
    assert measured["serial"]["iterations_per_s"] < 0.95 * measured["parallel"]["iterations_per_s"]


WRONG = [
    (("--mode", "quick"), "expected standard, notify-ack, backup:N"),
    (("--slowdown", "random:x"), "expected random:FACTOR"),
    (("--slowdown", "7:2"), "expected a rank below 2, got 7"),
]


def test_wrong_options():
    outcomes = outcomes_of_wrong_use(2, str(BENCH / "hop.py"), [options for options, _ in WRONG])
    for outcome, (_, text) in zip(outcomes, WRONG, strict=True):
        assert outcome.status != 0
        assert text in outcome.err


@pytest.mark.parametrize("ranks_per_node", nightly_unless(lambda number: number == 1, [1, 2]))
def test_updates_go_through_queues(tmp_path, ranks_per_node):
    path = tmp_path / "queue.jsonl"
    options = ("--micro", "--model-bytes", 4e4, "--iterations", 20, "--ranks-per-node", ranks_per_node)
    outcome = hop(2, *options, "--json", path)
    assert outcome.status == 0
    (record,) = (json.loads(line) for line in path.read_text().splitlines())
    assert record["verified"]
    assert record["asleep_us"] < 0.5e6, "the owner sleeps for a second"
    assert hop(3, "--micro").status != 0
