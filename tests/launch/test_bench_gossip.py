"""`bench/gossip.py` on a few ranks: it verifies what it measures, and writes what bench/plot.py reads."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from launcher import Outcome, launcher, run
from nightly import nightly_unless
from wrong_use import outcomes_of_wrong_use

BENCH = Path(__file__).resolve().parents[2] / "bench"


def gossip(ranks: int, *options: object) -> Outcome:
    command = [*launcher(), "-n", str(ranks), sys.executable, str(BENCH / "gossip.py"), *map(str, options)]
    outcome = run(command, limit=100)
    assert not outcome.hung
    return outcome


def records(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    ("ranks", "ranks_per_node"), nightly_unless(lambda case: case == (4, 2), [(3, 1), (4, 2), (4, 4)])
)
def test_every_method_is_measured_and_verified(tmp_path, ranks, ranks_per_node):
    path = tmp_path / "gossip.jsonl"
    options = ("--model-bytes", 4e4, "--compute-ms", 5, "--iterations", 20, "--ranks-per-node", ranks_per_node)
    slow = ("--slowdown", "none", "--slowdown", "1:10")
    outcome = gossip(ranks, "--methods", "all", *options, *slow, "--json", path)
    assert outcome.status == 0
    measured = records(path)
    methods = ["allreduce", "full", "d-psgd", "sgp", "ad-psgd", "a2cid2"]
    assert [record["method"] for record in measured] == 2 * methods
    assert [record["slowdown"] for record in measured] == 6 * ["none"] + 6 * ["1:10"]
    for record in measured:
        assert record["verified"]
        assert (record["ranks"], record["ranks_per_node"]) == (ranks, ranks_per_node)
        assert 0 < record["iterations_per_s"] <= 1.01 * record["ideal_iterations_per_s"]
        assert 0 <= record["waiting_fraction"] <= 1
        assert len(record["iterations_per_s_of"]) == ranks
        assert (record["exchanges_per_s"] is not None) == (record["method"] in ("ad-psgd", "a2cid2"))
        assert record["others_kept"] > 0
    slowed = {record["method"]: record["iterations_per_s_of"] for record in measured[6:]}
    assert slowed["ad-psgd"][0] > 2 * slowed["ad-psgd"][1]
    assert slowed["allreduce"][0] < 1.5 * slowed["allreduce"][1]


@pytest.mark.parametrize(("ranks", "ranks_per_node"), nightly_unless(lambda case: case == (3, 1), [(2, 2), (3, 1)]))
def test_exchanges_are_measured_and_verified(tmp_path, ranks, ranks_per_node):
    path = tmp_path / "exchange.jsonl"
    options = ("--micro", "--model-bytes", "4e4", "--iterations", 8, "--ranks-per-node", ranks_per_node)
    outcome = gossip(ranks, *options, "--json", path)
    assert outcome.status == 0
    awake, asleep = records(path)
    assert (awake["neighbor"], asleep["neighbor"]) == ("awake", "asleep")
    for record in (awake, asleep):
        assert record["verified"]
        assert (record["method"], record["bytes"], record["ranks"]) == ("exchange", 40_000, ranks)
        assert 0 <= record["skipped"] < 1
    assert asleep["baseline_us"]["mean"] > 0.5e6 > asleep["latency_us"]["mean"]


def test_the_bias_toward_fast_ranks_is_measured(tmp_path):
    path = tmp_path / "bias.jsonl"
    options = ("--bias", "--slowdown", "0:10", "--compute-ms", 2, "--iterations", 400, "--warmup", 1400)
    outcome = gossip(3, *options, "--json", path)
    assert outcome.status == 0
    uniform, frequency = records(path)
    assert (uniform["weighting"], frequency["weighting"]) == ("uniform", "frequency")
    assert uniform["optimum"] == frequency["optimum"] == pytest.approx(400 / 3, abs=1e-3)
    assert uniform["off"] > 1.5 * frequency["off"]
    assert frequency["steps_of"][0] < frequency["steps_of"][1] / 2


def test_what_would_be_measured(tmp_path):
    options = ("--methods", "sgp", "--slowdown", "none", "--slowdown", "1:5", "--json", tmp_path / "none")
    outcome = gossip(2, "--list", *options)
    assert outcome.status == 0
    assert outcome.out.splitlines() == [
        "# ranks 2, topology bipartite-exponential",
        "allreduce 1000000 bytes, slowdown none",
        "sgp 1000000 bytes, slowdown none",
        "allreduce 1000000 bytes, slowdown 1:5",
        "sgp 1000000 bytes, slowdown 1:5",
    ]
    assert not list(tmp_path.iterdir())
    outcome = gossip(2, "--list", "--micro")
    assert outcome.out.splitlines()[1] == "exchange 1000000 bytes, neighbor awake"


WRONG = [
    (["--slowdown", "2:5"], "expected a rank below 2"),
    (["--slowdown", "fast"], "expected RANK:FACTOR"),
    (["--methods", "gossip"], "unknown method 'gossip'"),
    (["--model-bytes", "7"], "positive multiples of 4"),
    (["--topology", "circle"], "--topology: "),
]


def test_wrong_use():
    outcomes = outcomes_of_wrong_use(2, str(BENCH / "gossip.py"), [options for options, _ in WRONG])
    for outcome, (_, message) in zip(outcomes, WRONG, strict=True):
        assert outcome.status == 2
        assert message in " ".join(outcome.err.split())
        assert outcome.err.count("Usage:") == 1
