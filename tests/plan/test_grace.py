"""`Quorum(grace="auto")` in virtual time: it follows phases of different step times, for which no fixed grace fits."""

import numpy as np
import pytest

import pycollectives as pc
from pycollectives.support.native import core

RANKS, CALLS = 8, 200
STEP = (0.010, 0.100, 0.010)
"""Seconds of a step in each phase."""
FIXED = (0.0, 0.0025, 0.005, 0.0075, 0.010, 0.020, 0.050, 0.075, 0.100)
SEEDS = range(4)


def work(seed, deviation, slow=()):
    """Lognormal times of steps, CALLS in each phase; the ranks in `slow` take ten times as long."""
    draw = np.random.default_rng(seed)
    factors = draw.lognormal(-(deviation**2) / 2, deviation, (RANKS, len(STEP) * CALLS))
    factors[list(slow)] *= 10
    return factors * np.repeat(STEP, CALLS)


def run(grace, times, ranks_per_node=RANKS, activation="tree"):
    calls = times.shape[1]
    return core.simulate(
        **pc.Quorum(4, grace=grace).engine_arguments(),
        size=RANKS,
        ranks_per_node=ranks_per_node,
        activation=activation,
        work=times,
        calls=np.full(RANKS, calls),
        count=1,
        record=False,
        max_events=2_000_000,
    )


def phases(grace, deviation, ranks_per_node=RANKS, activation="tree"):
    """Contributors of the rounds that calls wait for, and the mean wait of all calls, in each phase."""
    found = []
    for seed in SEEDS:
        told = run(grace, work(seed, deviation), ranks_per_node, activation)
        phase = np.where(told["call"] >= 0, told["call"] // CALLS, -1)
        waited = told["done"] - told["called"]
        found.append(
            [
                (told["contributors"][(phase == p) & ~told["late"]].mean(), waited[phase == p].mean())
                for p in range(len(STEP))
            ]
        )
    return np.mean(found, axis=0)


@pytest.mark.parametrize(
    ("ranks_per_node", "activation"), [(RANKS, "tree"), (3, "tree"), (1, "tree"), (1, "dissemination")]
)
@pytest.mark.parametrize("deviation", [0.2, 0.5])
def test_at_equal_waiting_it_gets_the_contributors_of_the_best_fixed_grace(deviation, ranks_per_node, activation):
    """In each phase, to within 0.06 of 8, though the best of the second is ten times as long."""
    fixed = [phases(grace, deviation) for grace in FIXED]
    for p, (contributors, waited) in enumerate(phases("auto", deviation, ranks_per_node, activation)):
        curve = sorted((each[p][1], each[p][0]) for each in fixed)
        assert contributors > np.interp(waited, *zip(*curve, strict=True)) - 0.06
        assert contributors > fixed[0][p][0] + 0.8


def active_in_rounds(work, **options):
    """Ranks that arrived in time, by round, of three ranks with a quorum of two."""
    calls = [len(each) for each in work]
    times = np.array([each + [0.0] * (max(calls) - len(each)) for each in work])
    told = core.simulate(
        **pc.Quorum(2, grace="auto").engine_arguments(),
        size=3,
        work=times,
        calls=np.array(calls),
        count=1,
        record=False,
        max_events=100_000,
        **options,
    )
    in_time = (told["call"] >= 0) & ~told["late"]
    return [told["active"][in_time & (told["round"] == number)].max() for number in range(told["round"].max())]


def test_calls_during_a_round_count():
    """A round between nodes takes longer than the third rank is behind: its calls miss the grace, but are not late."""
    slower = 12
    work = [[2.0] * 30, [2.0] * 30, [2.1] * slower + [2.8] * (30 - slower)]
    active = active_in_rounds(work, ranks_per_node=1, latency=0.3)
    assert active[slower - 1] == 3
    assert 2 in active[slower:]
    assert active[-5:] == [3] * 5


def test_a_rank_that_calls_again_counts_once():
    """The first rank makes five calls in a row, which are no arrivals of further ranks."""
    work = [[0.997, 0.001, 0.001, 0.001, 0.001] * 24, [1.0] * 24, [1.5] + [0.98, 1.02] * 11 + [1.0]]
    work[0][0] = 1.001
    work[0][5::5] = [0.996] * 23
    active = active_in_rounds(work, ranks_per_node=3, pipeline=10)
    assert active[-10:] == [3] * 10


def test_ranks_that_are_always_slow_are_not_waited_for():
    """Half of the ranks take ten times as long: a round takes at most twice as long as its quorum."""
    slow = range(4, RANKS)
    ends = []
    for grace in (0.0, "auto", 10.0):
        told = run(grace, work(0, 0.2, slow))
        fast = np.isin(told["rank"], slow, invert=True) & (told["call"] >= 0)
        ends.append(told["done"][fast].max())
    without, auto, full = ends
    assert auto < 2 * without
    assert full > 3 * without
