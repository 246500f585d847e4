"""bench/survive.py: ranks are killed, and the survivors say how soon they continued."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from killer import WITH_FAULT_TOLERANCE, WITH_RESPAWN
from launcher import environment, launcher, run
from nightly import nightly_unless

pytestmark = pytest.mark.skipif(len(launcher()) == 1, reason="needs Open MPI's --with-ft")

BENCH = Path(__file__).parents[2] / "bench" / "survive.py"


@pytest.mark.parametrize(
    ("what", "ranks_per_node", "on_failure", "program"),
    [
        ("rank", "all", "raise", "allreduce"),
        ("coordinator", "2", "raise", "allreduce"),
        ("leader", "2", "continue", "allreduce"),
        ("rank", "all", "continue", "groups"),
        ("coordinator", "1", "continue", "gossip"),
        ("leader", "2", "continue", "hop"),
        ("coordinator", "2", "continue", "server"),
        ("rank", "all", "continue", "server"),
        pytest.param("rank", "2", "continue", "optimizer", marks=pytest.mark.nightly),
    ],
)
def test_survivors_continue(tmp_path, what, ranks_per_node, on_failure, program):
    options = ["--kills", "2", "--every", "0.2", "--what", what, "--ranks-per-node", ranks_per_node]
    options += ["--on-failure", on_failure, "--program", program]
    command = [*launcher(), *WITH_FAULT_TOLERANCE, "-n", "4", sys.executable, str(BENCH), *options]
    job = run([*command, "--json", str(tmp_path / "survive.jsonl")], limit=90, env=environment())
    assert job.status == 0, job
    (record,) = map(json.loads, (tmp_path / "survive.jsonl").read_text().splitlines())
    names = {"raise": ("detected", "shrunk", "next"), "continue": ("changed", "next")}[on_failure]
    times = [record[f"kill_to_{name}_ms"]["p50"] for name in names]
    assert times[0] > 0, record
    assert times == sorted(times), record
    assert times[-1] < 20_000, record
    assert record["lost"] == (3 + 2 if on_failure == "raise" else 0)
    assert (record["wrong"], record["verified"], record["kills"], record["program"]) == (0, True, 2, program)
    assert "# pycollectives Survival" in job.out, job
    assert (record["goodput"] is None) if on_failure == "raise" else record["goodput"] > 0, record


@pytest.mark.parametrize("disturb", nightly_unless(lambda disturb: disturb == "stop", ["stop", "gil"]))
def test_a_survivor_that_is_stopped_is_not_left_out(tmp_path, disturb):
    options = ["--kills", "2", "--every", "1", "--by", "segv,abort", "--disturb", disturb, "--policy", "full"]
    command = [*launcher(), *WITH_FAULT_TOLERANCE, "-n", "4", sys.executable, str(BENCH), *options]
    job = run([*command, "--json", str(tmp_path / "survive.jsonl")], limit=90, env=environment())
    assert job.status == 0, job
    (record,) = map(json.loads, (tmp_path / "survive.jsonl").read_text().splitlines())
    assert (record["wrong"], record["by"], record["disturb"]) == (0, ["segv", "abort"], disturb)
    assert len(record["next_ms"]) == 2 * 2, record  # of those that survive both
    assert record["kill_to_next_ms"]["max"] > 300, record  # a round with all waits for it


@pytest.mark.parametrize("program", nightly_unless(lambda program: program == "server", ["allreduce", "server", "hop"]))
def test_survivors_of_a_node_continue(tmp_path, program):
    options = ["--kills", "2", "--every", "0.2", "--what", "node", "--ranks-per-node", "2", "--program", program]
    command = [*launcher(), *WITH_FAULT_TOLERANCE, "-n", "6", sys.executable, str(BENCH), *options]
    job = run([*command, "--json", str(tmp_path / "survive.jsonl")], limit=90, env=environment())
    assert job.status == 0, job
    (record,) = map(json.loads, (tmp_path / "survive.jsonl").read_text().splitlines())
    assert (record["wrong"], record["kills"], record["ranks"], record["what"]) == (0, 2, 6, "node")
    assert record["kill_to_next_ms"]["p50"] < 20_000, record


@pytest.mark.nightly
@pytest.mark.parametrize("baseline", ["restart", "torchft"])
def test_other_ways_to_survive_are_measured(tmp_path, baseline):
    if baseline == "torchft":
        pytest.importorskip("torchft")
    options = ["--kills", "1", "--every", "0.5", "--program", "optimizer", "--heal", "spare", "--baseline", baseline]
    command = [*launcher(), *WITH_FAULT_TOLERANCE, "-n", "3", sys.executable, str(BENCH), *options]
    job = run([*command, "--json", str(tmp_path / "survive.jsonl")], limit=120, env=environment())
    assert job.status == 0, job
    own, other = map(json.loads, (tmp_path / "survive.jsonl").read_text().splitlines())
    assert (own["ranks"], other["ranks"], other["baseline"]) == (2, 2, baseline)
    assert 0 < other["kill_to_next_ms"]["p50"] <= other["kill_to_full_ms"]["p50"], other
    assert other["goodput"] > 0, other


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--baseline", "slow"], "expected some of torchft, restart, got 'slow'"),
        (["--baseline", "restart"], "--baseline: expected --program optimizer and --what rank"),
    ],
)
def test_baselines_that_are_refused(options, text):
    job = run([sys.executable, str(BENCH), *options], limit=60, env=environment())
    assert job.status != 0
    assert text in job.err, job


@pytest.mark.parametrize("heal", ["respawn", "background"])
def test_new_processes_replace_the_dead(tmp_path, heal):
    """All ranks make rounds again after each of five deaths, more than there are ranks."""
    options = ["--kills", "5", "--every", "0.1", "--heal", heal, "--json", str(tmp_path / "survive.jsonl")]
    command = [*launcher(), *WITH_RESPAWN, "-n", "4", sys.executable, str(BENCH), *options]
    job = run(command, limit=90, env=environment())
    assert job.status == 0, job
    (record,) = map(json.loads, (tmp_path / "survive.jsonl").read_text().splitlines())
    assert (record["wrong"], record["verified"], record["kills"], record["ranks"]) == (0, True, 5, 4)
    assert 0 < record["kill_to_full_ms"]["p50"] < 20_000, record
    if heal == "background":
        assert record["kill_to_next_ms"]["p50"] < record["kill_to_full_ms"]["p50"] / 2, record


@pytest.mark.nightly
@pytest.mark.alone
@pytest.mark.timeout(300)
def test_ranks_die_and_are_replaced_for_a_minute(tmp_path):
    """Every contribution of a survivor counts once, which the benchmark checks, and no rank's memory grows."""
    options = ["--kills", "17", "--every", "3.5", "--heal", "respawn", "--json", str(tmp_path / "survive.jsonl")]
    command = [*launcher(), *WITH_RESPAWN, "-n", "8", sys.executable, str(BENCH), *options]
    job = run(command, limit=240, env=environment())
    assert job.status == 0, job
    (record,) = map(json.loads, (tmp_path / "survive.jsonl").read_text().splitlines())
    assert (record["wrong"], record["verified"], record["kills"], record["ranks"]) == (0, True, 17, 8)
    assert job.seconds > 50, job
    assert record["growth_mb"] < 15, record


@pytest.mark.parametrize(
    "program",
    nightly_unless(lambda program: program in ("hop", "server"), ["groups", "gossip", "hop", "server", "optimizer"]),
)
def test_spares_replace_the_dead(tmp_path, program):
    options = ["--kills", "2", "--every", "0.2", "--heal", "spare", "--program", program]
    command = [*launcher(), *WITH_FAULT_TOLERANCE, "-n", "6", sys.executable, str(BENCH), *options]
    job = run([*command, "--json", str(tmp_path / "survive.jsonl")], limit=90, env=environment())
    assert job.status == 0, job
    (record,) = map(json.loads, (tmp_path / "survive.jsonl").read_text().splitlines())
    assert (record["wrong"], record["kills"], record["ranks"], record["program"]) == (0, 2, 4, program)
    assert 0 < record["kill_to_full_ms"]["p50"] < 20_000, record


def test_calls_before_a_death_are_measured(tmp_path):
    options = ["--on-failure", "continue", "--policy", "solo", "--bytes", "8", "--iterations", "20"]
    latency = [str(BENCH.with_name("latency.py")), *options, "--json", str(tmp_path / "latency.jsonl")]
    job = run([*launcher(), *WITH_FAULT_TOLERANCE, "-n", "2", sys.executable, *latency], limit=90, env=environment())
    assert job.status == 0, job
    (record,) = map(json.loads, (tmp_path / "latency.jsonl").read_text().splitlines())
    assert (record["on_failure"], record["verified"]) == ("continue", True)
    assert "on_failure=continue" in job.out, job
