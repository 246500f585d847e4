"""The parts of bench/gossip.py that need no MPI: methods, slowdowns, graphs, the check of models, records, figures."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import pytest

BENCH = Path(__file__).resolve().parents[3] / "bench"
sys.path.insert(0, str(BENCH))

from common import gossip, output  # noqa: E402
from common.gossip import (  # noqa: E402
    ExchangeCell,
    Final,
    GossipCell,
    Outcome,
    Setting,
    Slowdown,
    audit_models,
    exchange_record,
    gossip_record,
    step_of,
)
from common.gossip_micro import Averages, parts_of, seconds_of_exchange  # noqa: E402
from common.summary import Summary  # noqa: E402
from common.timing import Timeline, Window  # noqa: E402

# --- the command line ---


def test_the_allreduce_is_always_measured_first_and_nothing_twice():
    assert gossip.parse_methods("ad-psgd, sgp,ad-psgd") == ["allreduce", "ad-psgd", "sgp"]
    assert gossip.parse_methods("all") == list(gossip.METHODS)
    with pytest.raises(ValueError, match="'gossip'"):
        gossip.parse_methods("gossip")


def test_sizes_of_models():
    assert gossip.parse_model_bytes("1e6,9.2e6") == [1_000_000, 9_200_000]
    for text in ("", "7", "0", "-4", "many", "4,,8"):
        with pytest.raises(ValueError, match="positive multiples of 4"):
            gossip.parse_model_bytes(text)


def test_a_slowdown_is_how_many_times_as_long_the_work_takes():
    slow = Slowdown.parse("3:10,1:0.5")
    assert slow.seconds(ranks=4, compute=0.2) == pytest.approx([0.2, 0.1, 0.2, 2.0])
    assert slow.others(4) == [0, 2]
    assert str(slow) == "1:0.5,3:10"
    assert Slowdown.parse("0:1,1:2").others(3) == [0, 2]
    assert Slowdown.parse("0:2,1:2").others(2) == [0, 1]
    slow.require(4)
    with pytest.raises(ValueError, match="expected a rank below 3, got 3"):
        slow.require(3)


def test_nobody_is_slow_by_name_or_by_default():
    for text in ("none", ""):
        assert Slowdown.parse(text) == Slowdown({})
        assert str(Slowdown.parse(text)) == "none"
        Slowdown.parse(text).require(1)


@pytest.mark.parametrize("text", ["0", "0:", "0:0", "0:-1", "0:nan", "x:2", "0:2,0:3", "none,0:2"])
def test_wrong_slowdowns_are_refused(text):
    with pytest.raises(ValueError, match=r"RANK:FACTOR|twice"):
        Slowdown.parse(text)


@pytest.mark.parametrize(
    ("name", "methods", "ranks", "message"),
    [
        ("circle", [], 4, "topology: expected 'ring'"),
        ("hypercube", [], 6, "power of two"),
        ("exponential", ["sgp", "ad-psgd"], 8, "^ad-psgd: .*symmetric"),
        ("one-peer-exponential", ["a2cid2"], 8, "^a2cid2: .*does not vary"),
        ("exponential", ["d-psgd"], 8, "^d-psgd: .*symmetric"),
    ],
)
def test_graphs_that_a_method_cannot_use_are_refused(name, methods, ranks, message):
    with pytest.raises(ValueError, match=message):
        gossip.check_topology(name, methods, ranks)


@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 16])
def test_the_graphs_that_a_method_can_use_are_not(ranks):
    gossip.check_topology("bipartite-exponential", gossip.METHODS, ranks)
    gossip.check_topology("one-peer-exponential", ["allreduce", "full", "sgp"], ranks)


def test_exchanges_need_pairs_whose_even_ranks_begin():
    gossip.check_micro("bipartite-exponential", 8, 1)
    gossip.check_micro("star", 8, 8)
    with pytest.raises(ValueError, match="at least 2 ranks, got 1"):
        gossip.check_micro("ring", 1, 1)
    with pytest.raises(ValueError, match="even number of ranks per node"):
        gossip.check_micro("complete", 6, 3)
    with pytest.raises(ValueError, match="rank 2 does not"):
        gossip.check_micro("star", 8, 1)


# --- the check of models ---


def finals(applied: list[int], values: list[float]) -> list[Final]:
    """Models that say so much, after so many iterations of each rank."""
    pattern = gossip.pattern(20)
    return [Final.of(np.float32(value) * pattern, times) for times, value in zip(applied, values, strict=True)]


def mean_of(applied: list[int]) -> float:
    return sum(step_of(rank) * times for rank, times in enumerate(applied)) / len(applied)


APPLIED = [80, 7, 81, 80]


def test_right_models_are_accepted():
    mean = mean_of(APPLIED)
    assert audit_models(finals(APPLIED, [mean] * 4), equal=True) == []
    assert audit_models(finals(APPLIED, [mean - 3, mean + 1, mean, mean + 2]), equal=False) == []


@pytest.mark.parametrize("equal", [True, False])
@pytest.mark.parametrize("rank", range(4))
@pytest.mark.parametrize("change", [-1, 1])
def test_a_delta_that_was_lost_or_counted_twice_is_found(equal, rank, change):
    applied = list(APPLIED)
    applied[rank] += change
    assert "what was applied comes to" in audit_models(finals(APPLIED, [mean_of(applied)] * 4), equal=equal)[0]


def test_models_that_should_be_equal_and_are_not_are_found():
    mean = mean_of(APPLIED)
    found = audit_models(finals(APPLIED, [mean - 1, mean + 1, mean, mean]), equal=True)
    assert [text.partition(":")[0] for text in found] == ["rank 0", "rank 1"]


def test_an_element_of_a_model_that_says_something_else_is_found():
    model = gossip.pattern(20) * np.float32(3)
    model[11] *= 1.01
    found = audit_models([Final.of(model, 3)], equal=False)
    assert found[0].startswith("rank 0: elements of its model say 3 to 3.03")
    model[11] = np.nan
    assert audit_models([Final.of(model, 3)], equal=False)


def test_a_model_counts_by_its_weight():
    model = gossip.pattern(20) * np.float32(6)
    assert audit_models([Final.of(model, 3, weight=0.5)], equal=True) == []


# --- exchanges ---


def test_only_ranks_that_begin_exchanges_count_and_only_what_they_averaged():
    block = [Averages(1.0, 100, 0), Averages(5.0, 1, 0), Averages(1.0, 300, 400), Averages(1.0, 0, 0)]
    seconds, share = seconds_of_exchange(block, 10)
    assert share == 0.1
    assert seconds == pytest.approx([1 / 90, 1 / 270])
    assert seconds_of_exchange([*block, Averages(9.0, 1, 0)], 10) == (seconds, share)


@pytest.mark.parametrize("block", [[Averages(1.0, 0, 0), Averages(1.0, 1, 0)], [Averages(1.0, 1, 5)] * 2])
def test_a_block_without_an_exchange_is_no_measurement(block):
    with pytest.raises(ValueError, match="expected exchanges"):
        seconds_of_exchange(block, 10)


# --- records and figures ---

KEYS = {
    *("bench", "collective", "method", "topology", "path", "ranks", "ranks_per_node", "bytes", "model_bytes", "dtype"),
    *("compute_ms", "slowdown", "seed", "iterations", "iterations_per_s", "iterations_per_s_of", "waiting_fraction"),
    *("others_iterations_per_s", "others_kept", "exchanges_per_s", "staleness_mean", "ideal_iterations_per_s"),
    *("latency_us", "baseline", "baseline_us", "baseline_iterations_per_s", "speedup", "verified"),
}
WINDOW = Window(1.0, 11.0)


class Nodes:
    path = "board"
    ranks_per_node = 4


class OneRankNodes:
    path = "flat"
    ranks_per_node = 1


SETTING = Setting(
    ranks=4,
    domain=Nodes(),
    topology="ring",
    bytes=1_000_000,
    compute=0.1,
    iterations=100,
    warmup=10,
    seed=7,
    verify=True,
)


def cell(method: str, slowdown: str, periods: list[float], exchanges: float | None = None) -> GossipCell:
    outcomes = []
    for period in periods:
        ends = np.arange(1, int(WINDOW.end / period) + 2) * period
        timeline = Timeline(ends - 0.1 * period, ends)
        outcomes.append(Outcome(timeline, Final(0.0, 0.0, len(ends)), exchanges, exchanges and 1.0, exchanges))
    return GossipCell.of(method, Slowdown.parse(slowdown), outcomes, WINDOW)


def records() -> list[output.Record]:
    equal = cell("ad-psgd", "none", [0.1] * 4, 5.0)
    slow = cell("allreduce", "0:10", [1.0] * 4)
    ours = cell("ad-psgd", "0:10", [1.0, 0.125, 0.125, 0.125], 5.0)
    return [
        gossip_record(SETTING, cell("allreduce", "none", [0.1] * 4), cell("allreduce", "none", [0.1] * 4), None),
        gossip_record(SETTING, equal, cell("allreduce", "none", [0.1] * 4), equal),
        gossip_record(SETTING, slow, slow, None),
        gossip_record(SETTING, ours, slow, equal),
    ]


def test_records_have_the_contract_s_keys():
    _, equal, baseline, slow = json.loads(json.dumps(records()))
    assert set(slow) >= KEYS
    assert (slow["method"], slow["collective"], slow["slowdown"]) == ("ad-psgd", "pairwise_averaging", "0:10")
    assert slow["iterations_per_s"] == pytest.approx(25 / 4)
    assert slow["iterations_per_s_of"] == pytest.approx([1, 8, 8, 8])
    assert slow["others_iterations_per_s"] == pytest.approx(8)
    assert slow["others_kept"] == pytest.approx(0.8)
    assert slow["speedup"] == pytest.approx(25 / 4)
    assert slow["waiting_fraction"] == pytest.approx(0.1)
    assert slow["ideal_iterations_per_s"] == pytest.approx((1 + 3 * 10) / 4)
    assert (slow["exchanges_per_s"], slow["staleness_mean"]) == (20.0, 5.0)
    assert (slow["exchanges_between_nodes_per_s"], baseline["exchanges_between_nodes_per_s"]) == (4.0, None)
    assert (equal["others_kept"], baseline["others_kept"]) == (1.0, None)
    assert (baseline["exchanges_per_s"], baseline["staleness_mean"]) == (None, None)


def exchanges() -> list[output.Record]:
    ours, theirs = Summary(50.0, 60.0, 60.0, 70.0, 70.0), Summary(100.0, 180.0, 180.0, 200.0, 200.0)
    return [
        exchange_record(SETTING, ExchangeCell(size, neighbor, ours, theirs, 0.001))
        for size in (1_000_000, 9_200_000)
        for neighbor in ("awake", "asleep")
    ]


def test_records_of_exchanges():
    record = json.loads(json.dumps(exchanges()))[1]
    assert (record["method"], record["bytes"], record["neighbor"]) == ("exchange", 1_000_000, "asleep")
    assert (record["baseline"], record["speedup"], record["skipped"]) == ("MPI_Sendrecv", 3.0, 0.001)


def test_what_may_be_left_out_is_smaller_on_a_node():
    assert parts_of(SETTING) == 16
    between_nodes = dataclasses.replace(SETTING, domain=OneRankNodes())
    assert parts_of(between_nodes) == 4
    assert parts_of(dataclasses.replace(between_nodes, bytes=1 << 30)) == 64


def test_plot_draws_slowdowns_and_exchanges(tmp_path):
    pytest.importorskip("matplotlib")
    import plot
    from common.figures import panels

    everything = [*records(), *exchanges()]
    assert [panel.title for panel in panels(everything)] == [
        "4 workers, 4 per node, 1 MB, topology ring",
        "an exchange, 4 ranks, 4 per node, neighbor awake",
        "an exchange, 4 ranks, 4 per node, neighbor asleep",
    ]
    path, picture = tmp_path / "gossip.jsonl", tmp_path / "gossip.png"
    with output.Records(path) as out:
        for record in everything:
            out.write(record)
    plot.plot.main(args=[str(path), "--output", str(picture)], standalone_mode=False)
    assert picture.read_bytes().startswith(b"\x89PNG")
