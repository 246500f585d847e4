"""The parts of bench/server.py that need no MPI: who serves, speeds, the check of weights, records."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import numpy as np
import pytest

BENCH = Path(__file__).resolve().parents[3] / "bench"
sys.path.insert(0, str(BENCH))

from common.gossip import Slowdown, step_of  # noqa: E402
from common.output import Domain  # noqa: E402
from common.server import (  # noqa: E402
    DISCARDED,
    Outcome,
    ServerCell,
    Servers,
    Setting,
    Speeds,
    audit,
    ideal_of,
    parse_syncs,
    server_record,
)

SETTING = Setting(
    ranks=5,
    domain=Domain(5),
    bytes=4000,
    compute=0.1,
    speeds=Speeds.parse("uniform:1.0:1.5"),
    slowdown=Slowdown({}),
    iterations=40,
    seed=7,
    verify=True,
)

# --- the command line ---


def test_bsp_is_always_measured_first_and_nothing_twice():
    assert parse_syncs("asp, ssp:3,asp") == ["bsp", "asp", "ssp:3"]
    for text in ("odd", "ssp", "eamsgd:4:0.1", "bsp,,asp"):
        with pytest.raises(ValueError, match="expected"):
            parse_syncs(text)


def test_workers_are_the_ranks_that_do_not_serve_or_all():
    assert Servers.parse("2").workers(5) == [2, 3, 4]
    assert Servers.parse("node").workers(3) == [0, 1, 2]
    assert [str(Servers.parse(text)) for text in ("1", "node")] == ["1", "node"]
    with pytest.raises(ValueError, match="more ranks than servers, of which there are 3; got 3"):
        Servers.parse("3").workers(3)
    for text in ("0", "-1", "all", ""):
        with pytest.raises(ValueError, match="expected a positive number or 'node'"):
            Servers.parse(text)


def test_each_worker_keeps_the_speed_that_it_is_drawn():
    speeds = Speeds.parse("uniform:1.0:1.5")
    drawn = speeds.factors(400, 3)
    assert 1 <= drawn.min() < 1.01 < 1.49 < drawn.max() < 1.5
    np.testing.assert_array_equal(drawn, speeds.factors(400, 3))
    assert str(speeds) == "uniform:1:1.5"
    assert Speeds.parse("none") == Speeds()
    assert str(Speeds()) == "none"
    assert Speeds().factors(2, 1).tolist() == [1, 1]
    for text in ("", "uniform", "uniform:2:1", "uniform:0:1", "normal:1:2", "uniform:1:x", "uniform:nan:2"):
        with pytest.raises(ValueError, match="expected uniform:LEAST:MOST"):
            Speeds.parse(text)


def test_what_each_worker_sleeps():
    slow = dataclasses.replace(SETTING, speeds=Speeds(), slowdown=Slowdown({3: 3.0}))
    assert slow.seconds(Servers(2)) == pytest.approx({2: 0.1, 3: 0.3, 4: 0.1})
    slow.check(Servers(3), micro=False)
    with pytest.raises(ValueError, match="the rank of a worker, 4 to 4, got 3"):
        slow.check(Servers(4), micro=False)
    with pytest.raises(ValueError, match="expected 2 ranks or more, got 1"):
        dataclasses.replace(SETTING, ranks=1).check(Servers(None), micro=True)


# --- what is measured ---


def outcomes(
    ends: list[list[float]], *, waited: float = 0.01, said: float = 0.0, discards: bool = False
) -> list[Outcome]:
    """Workers of ranks 1, 2, ..., whose push-pulls end then."""
    return [
        Outcome(
            rank=rank,
            start=100.0,
            begins=np.array(of_worker) - waited,
            ends=np.array(of_worker),
            staleness=np.array([DISCARDED, *[rank] * (len(of_worker) - 1)] if discards else [rank] * len(of_worker)),
            supersteps=2,
            superstep_s=0.5,
            slack_s=None,
            least=said,
            most=said,
        )
        for rank, of_worker in enumerate(ends, start=1)
    ]


def test_iterations_are_those_until_the_first_worker_has_made_all():
    found = outcomes([[0.1, 0.2, 0.3, 0.4], [0.25, 0.5, 0.75, 1.0]])
    cell = ServerCell.of("asp", found, ideal_of("asp", [0.1, 0.25], 4))
    assert cell.iterations_per_s == pytest.approx((4 + 1) / 2 / 0.4)
    assert cell.waiting_fraction == pytest.approx((4 * 0.01 + 0.01) / 2 / 0.4)
    assert cell.staleness_mean == pytest.approx((4 * 1 + 2) / 5)
    assert cell.ideal.iterations_per_s == pytest.approx(cell.iterations_per_s)
    later = [found[0], dataclasses.replace(found[1], start=100.2)]
    assert ServerCell.of("asp", later, cell.ideal).iterations_per_s == pytest.approx(4 / 2 / 0.4)
    elsewhere = [found[0], dataclasses.replace(found[1], start=7e5)]
    assert ServerCell.of("asp", elsewhere, cell.ideal).iterations_per_s == cell.iterations_per_s


def test_what_the_weights_say_is_what_was_pushed():
    applied = 4 * (step_of(1) + step_of(2))
    ends = [[0.1, 0.2, 0.3, 0.4]] * 2
    assert audit("asp", outcomes(ends, said=-applied)) == []
    assert audit("bsp", outcomes(ends, said=-applied / 2)) == []
    for sync in ("asp", "ssp:1", "dssp:1:2", "elastic:4", "ringmaster:9"):
        lost, twice = -applied + step_of(2), -applied - step_of(2)
        for said in (lost, twice, -applied / 2, float("nan")):
            assert len(audit(sync, outcomes(ends, said=said))) == 2, (sync, said)
    assert len(audit("bsp", outcomes(ends, said=-(applied - step_of(2)) / 2))) == 2
    assert audit("rescaled", outcomes(ends, said=-3)) == [], "how much each counts depends on when it came"
    fewer = outcomes(ends, said=-3 * (step_of(1) + step_of(2)), discards=True)
    assert audit("ringmaster:2", fewer) == []
    assert ServerCell.of("ringmaster:2", fewer, ideal_of("asp", [0.1, 0.1], 4)).staleness_mean == 1.5
    torn = [dataclasses.replace(each, least=-4.0) for each in outcomes(ends, said=-3.0)]
    assert "elements of the weights say -4 to -3" in audit("rescaled", torn)[0]


def test_the_record_of_a_cell():
    ends = [[0.1, 0.2, 0.3, 0.4], [0.25, 0.5, 0.75, 1.0]]
    ideal = ideal_of("bsp", [0.1, 0.25], 4)
    bsp = ServerCell.of("bsp", outcomes([[0.25, 0.5, 0.75, 1.0]] * 2), ideal)
    record = server_record(
        SETTING, Servers(None), ServerCell.of("asp", outcomes(ends), ideal_of("asp", [0.1, 0.25], 4)), bsp
    )
    keys = {"sync", "iterations_per_s", "ideal_iterations_per_s", "waiting_fraction", "staleness_mean"}
    assert keys <= record.keys()
    assert (record["sync"], record["servers"], record["workers"], record["used"]) == ("asp", "node", 2, 8)
    assert record["of_ideal"] == 1
    assert record["speedup"] == record["ideal_speedup"] == pytest.approx(6.25 / 4)
    assert (record["superstep_ms"], record["slack_ms"]) == (500, None)
