"""Kinds of synchronization: what is refused, texts, and what reaches the engine."""

import math

import numpy as np
import pytest

from pycollectives import servers
from pycollectives.servers import sync
from pycollectives.support.native import core

TEXTS = {
    "bsp": servers.BSP(),
    "asp": servers.ASP(),
    "ssp:3": servers.SSP(3),
    "ssp:0": servers.SSP(0),
    "dssp:3:15": servers.DSSP(3, 15),
    "elastic": servers.ElasticBSP(),
    "elastic:30": servers.ElasticBSP(30),
    "elastic:30:superstep": servers.ElasticBSP(30, predict="superstep"),
    "elastic-per-time": servers.ElasticBSP(objective="waiting-per-time"),
    "elastic-per-time:30": servers.ElasticBSP(30, objective="waiting-per-time"),
    "eamsgd:10:0.1": servers.EAMSGD(10, 0.1),
    "ringmaster:8": servers.Ringmaster(8),
    "rennala:4": servers.Rennala(4),
    "ringleader": servers.Ringleader(),
    "rescaled": servers.Rescaled(),
    "mindflayer:4:0.5": servers.MindFlayer(4, 0.5),
}


@pytest.mark.parametrize("text", TEXTS)
def test_texts(text):
    assert sync.parse(text) == TEXTS[text]


@pytest.mark.parametrize("text", ["", "bsp:1", "ssp", "dssp:3", "elastic:1:2:3", "hop", "mindflayer:4", "SSP:3"])
def test_texts_that_are_refused(text):
    with pytest.raises(ValueError, match=r"expected a synchronization, bsp, .* or mindflayer:TRIALS:SECONDS, got"):
        sync.parse(text)


def test_texts_whose_numbers_are_refused():
    with pytest.raises(ValueError, match="expected the synchronization ssp:S, with numbers, got 'ssp:three'"):
        sync.parse("ssp:three")
    with pytest.raises(ValueError, match="SSP: expected s >= 0, got -1"):
        sync.parse("ssp:-1")


@pytest.mark.parametrize(("make", "text"), [
    (lambda: servers.SSP(-1), "SSP: expected s >= 0, got -1"),
    (lambda: servers.SSP(2**63), "SSP: expected s <= "),
    (lambda: servers.DSSP(5, 3), "DSSP: expected lo <= hi, got 5 and 3"),
    (lambda: servers.DSSP(-1, 3), "DSSP: expected lo >= 0, got -1"),
    (lambda: servers.ElasticBSP(0), "ElasticBSP: expected lookahead >= 1, got 0"),
    (lambda: servers.ElasticBSP(1 << 17), "ElasticBSP: expected lookahead <= 65536"),
    (lambda: servers.ElasticBSP(algorithm="naive"), "ElasticBSP: algorithm: expected 'linear' or .* got 'naive'"),
    (lambda: servers.ElasticBSP(objective="time"), "ElasticBSP: objective: expected 'waiting' or 'waiting-per-time'"),
    (lambda: servers.ElasticBSP(15, "zipline", "waiting-per-time"), "'linear' .* 'waiting-per-time', got 'zipline'"),
    (lambda: servers.BSP(patience=0), "BSP: expected patience > 0, got 0"),
    (lambda: servers.SSP(3, patience=math.nan), "SSP: expected a finite patience"),
    (lambda: servers.EAMSGD(0, 0.1), "EAMSGD: expected period >= 1, got 0"),
    (lambda: servers.EAMSGD(1, 1.0), "EAMSGD: expected 0 < alpha < 1, got 1.0"),
    (lambda: servers.EAMSGD(1, 0.0), "EAMSGD: expected 0 < alpha < 1, got 0.0"),
    (lambda: servers.Ringmaster(0), "Ringmaster: expected limit >= 1, got 0"),
    (lambda: servers.Rennala(0), "Rennala: expected batch >= 1, got 0"),
    (lambda: servers.MindFlayer(0, 1.0), "MindFlayer: trials: expected at least 1, got 0"),
    (lambda: servers.MindFlayer(1, 0.0), "MindFlayer: expected finite seconds > 0, got 0.0"),
    (lambda: servers.MindFlayer((1, 2), (1.0, 1.0, 1.0)), "MindFlayer: .* one length, got 2 trials and 3 seconds"),
    (lambda: servers.MindFlayer((), 1.0), "MindFlayer: expected tuples of one length, got 0 trials and 1 seconds"),
])  # fmt: skip
def test_numbers_that_are_refused(make, text):
    with pytest.raises(ValueError, match=text):
        make()


@pytest.mark.parametrize("make", [
    lambda: servers.SSP(1.5),
    lambda: servers.SSP("3"),
    lambda: servers.Ringmaster(None),
    lambda: servers.MindFlayer(1.5, 1.0),
    lambda: servers.MindFlayer(1, "soon"),
    lambda: servers.BSP(patience="much"),
])  # fmt: skip
def test_types_that_are_refused(make):
    with pytest.raises(TypeError):
        make()


def test_numbers_become_pythons_own():
    assert servers.SSP(np.int64(3)) == servers.SSP(3)
    assert type(servers.SSP(np.int64(3)).s) is int
    assert servers.BSP(patience=math.inf).patience == math.inf
    assert hash(servers.MindFlayer([1, 2], 1)) == hash(servers.MindFlayer((1, 2), (1.0, 1.0)))


def test_mindflayers_numbers_are_of_each_worker():
    assert servers.MindFlayer(4, [0.5, 1]) == servers.MindFlayer((4, 4), (0.5, 1.0))
    with pytest.raises(ValueError, match="trials and their times: expected one of all workers, or one of each"):
        simulate(servers.MindFlayer((1, 2), (1.0, 1.0)), workers=3)
    assert simulate(servers.MindFlayer((1, 2), (1.0, 1.0)), workers=2)["clocks"] == [2, 2]


@pytest.mark.parametrize("kind", TEXTS.values(), ids=TEXTS)
def test_every_kind_reaches_the_engine(kind):
    assert simulate(kind)["clocks"] == [2, 2, 2]


def simulate(kind, workers=3):
    return core.simulate_server(
        sync=kind.engine_arguments(), workers=workers, max_pushes=2, work=[1.0] * 2 * workers,
        values=[1.0] * 2 * workers, slope=0.0, pushes=[2] * workers, vanishes=[2] * workers, absences=[],
        gives_up=True, latency=0.0, max_events=1000,
    )  # fmt: skip


@pytest.mark.parametrize("arguments", [
    {"kind": "sometimes"},
    {"kind": "elastic-bsp", "solver": "magic"},
    {"kind": "elastic-bsp", "lookahead": 0},
    {"kind": "dssp", "low": 2, "high": 1},
    {"kind": "ringmaster", "limit": 0},
    {"kind": "rennala", "limit": 0},
    {"kind": "bsp", "patience": 0.0},
    {"kind": "mindflayer", "trials": [0], "allotted": [1.0]},
    {"kind": "mindflayer", "trials": [1], "allotted": [0.0]},
    {"kind": "mindflayer"},
])  # fmt: skip
def test_the_engine_refuses_what_python_would(arguments):
    class Kind:
        def engine_arguments(self):
            return arguments

    with pytest.raises(ValueError, match=r"expected|unknown"):
        simulate(Kind())
