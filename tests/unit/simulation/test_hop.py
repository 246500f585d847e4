"""Hop in virtual time at no cost, against the recursion of its modes written down by hand."""

import numpy as np
import pytest

import pycollectives as pc
from pycollectives.hop.modes import parse
from pycollectives.simulation.hop import largest_gap, simulate_hop

RNG = np.random.default_rng(3)


def random_work(size, iterations, factor=6.0):
    return np.where(RNG.random((size, iterations)) < 1 / size, factor, 1.0) * 0.05


def starts_of(graph, work, *, backup=0, staleness=0):
    """When each rank begins each iteration: after its own computing, and once the updates that it needs were sent."""
    size, iterations = work.shape
    starts = np.zeros((iterations + 1, size))
    for k in range(iterations):
        for i in range(size):
            needed = max(k - staleness, -1)
            sent = sorted(starts[needed][j] if k >= staleness else 0.0 for j in graph.in_neighbors(i))
            starts[k + 1][i] = max(starts[k][i] + work[i][k], ([0.0, *sent[: len(sent) - backup]])[-1])
    return starts


@pytest.mark.parametrize("graph", [pc.topology.ring(8), pc.topology.ring_based(8)], ids=["ring", "ring-based"])
@pytest.mark.parametrize(
    ("text", "backup", "staleness"), [("standard", 0, 0), ("backup:1", 1, 0), ("staleness:5", 0, 5)]
)
def test_speeds(graph, text, backup, staleness):
    work = random_work(8, 60)
    mode, skip = parse(text)
    summary = simulate_hop(graph, mode, work, max_ig=64, skip=skip)  # tokens keep nobody
    expected = 60 / starts_of(graph, work, backup=backup, staleness=staleness)[-1].mean()
    assert summary.iterations_per_s == pytest.approx(expected, rel=1e-9)
    assert summary.skipped == 0


def test_a_rank_that_is_always_slow_skips():
    work = np.full((8, 80), 0.05)
    work[3] *= 4
    graph = pc.topology.ring_based(8)
    waiting = simulate_hop(graph, parse("backup:1")[0], work)
    mode, skip = parse("skip:10")
    skipping = simulate_hop(graph, mode, work, skip=skip)
    assert skipping.skipped > 40
    assert skipping.iterations_per_s > 2 * waiting.iterations_per_s


def test_the_largest_gap():
    entered = [(0.0, 0, 0), (0.0, 1, 0), (1.0, 0, 1), (2.0, 0, 2), (2.5, 1, 2), (3.0, 1, 3)]
    assert largest_gap(entered, 2) == 2
    at_once = [(0.0, 0, 0), (0.0, 1, 0), (1.0, 0, 1), (2.0, 1, 1), (2.0, 0, 2)]
    assert largest_gap(at_once, 2) == 1, "events of the same time are in their order"


@pytest.mark.parametrize("text", ["", "quick", "backup", "backup:x", "hybrid:1", "standard:1", "backup:1+skip"])
def test_modes_that_are_none(text):
    with pytest.raises(ValueError, match="expected standard, notify-ack, backup:N"):
        parse(text)
