"""`bench/server.py` on a few ranks: models beside what they are at no cost, and push-pulls beside MPI's."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from launcher import Outcome, launcher, run
from nightly import nightly_unless
from wrong_use import outcomes_of_wrong_use

BENCH = Path(__file__).resolve().parents[2] / "bench"
MODELS = ["bsp", "asp", "ssp:2", "dssp:1:4", "elastic:6", "ringmaster:2", "rennala:2", "ringleader", "rescaled"]


def server(ranks: int, *options: object) -> Outcome:
    command = [*launcher(), "-n", str(ranks), sys.executable, str(BENCH / "server.py"), *map(str, options)]
    outcome = run(command, limit=100)
    assert not outcome.hung
    return outcome


@pytest.mark.parametrize(
    ("ranks", "ranks_per_node", "servers", "workers"),
    nightly_unless(
        lambda case: case == (4, 2, "2", 2),
        [(3, 3, "node", 3), (4, 4, "1", 3), (4, 2, "2", 2), (3, 1, "1", 2)],
    ),
)
def test_every_model_is_measured(tmp_path, ranks, ranks_per_node, servers, workers):
    path = tmp_path / "server.jsonl"
    slow = ("--speeds", "none", "--slowdown", f"{ranks - 1}:5")
    options = ("--compute-ms", 4, "--model-bytes", 4e4, "--iterations", 24, "--ranks-per-node", ranks_per_node)
    models = ("--sync", ",".join(MODELS[1:]), "--servers", servers)
    outcome = server(ranks, *models, *slow, *options, "--json", path)
    assert outcome.status == 0
    measured = [json.loads(line) for line in path.read_text().splitlines()]
    assert [record["sync"] for record in measured] == MODELS
    fastest = max(record["ideal_iterations_per_s"] for record in measured)  # of a model in which no worker waits
    for record in measured:
        assert (record["ranks"], record["workers"], record["servers"]) == (ranks, workers, servers)
        assert record["verified"]
        assert 0 < record["iterations_per_s"] < 1.1 * fastest, record
        assert 0 <= record["waiting_fraction"] <= 1
        assert record["used"] <= 24 * workers
    of = {record["sync"]: record for record in measured}
    assert of["bsp"]["speedup"] == 1
    assert of["bsp"]["staleness_mean"] == 0
    assert of["bsp"]["used"] == of["asp"]["used"] == 24 * workers
    ideal = {name: record["ideal_iterations_per_s"] for name, record in of.items()}
    assert ideal["asp"] > 1.2 * ideal["bsp"], "one of the workers is 5 times slower"
    assert of["bsp"]["supersteps"] == 24
    assert 1 <= of["elastic:6"]["supersteps"] <= 24 / 3, "a barrier comes with the third push of a worker or later"
    assert of["asp"]["superstep_ms"] is None


WRONG = [
    (("--sync", "quick"), "expected a synchronization, bsp, asp, ssp:S"),
    (("--sync", "eamsgd:4:0.1"), "got eamsgd, which pushes weights"),
    (("--servers", "2"), "expected more ranks than servers, of which there are 2; got 2"),
    (("--slowdown", "0:2"), "expected the rank of a worker, 1 to 1, got 0"),
    (("--speeds", "fast"), "expected uniform:LEAST:MOST"),
]


def test_wrong_options():
    outcomes = outcomes_of_wrong_use(2, str(BENCH / "server.py"), [options for options, _ in WRONG])
    for outcome, (_, text) in zip(outcomes, WRONG, strict=True):
        assert outcome.status != 0
        assert text in outcome.err


def test_push_pulls_beside_the_same_in_mpi4py(tmp_path):
    path = tmp_path / "micro.jsonl"
    outcome = server(3, "--micro", "--model-bytes", 4e5, "--iterations", 5, "--json", path)
    assert outcome.status == 0
    measured = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(record["servers"], record["workers"]) for record in measured] == [("1", 2), ("node", 2)]
    for record in measured:
        assert record["verified"]
        assert record["speedup"] > 0
        assert record["latency_us"]["mean"] > 0
