"""Histories of pairwise averaging in virtual time: any graph, any speeds, ranks that leave, every order of messages.

An element's sum over ranks is what the ranks began with and applied, whatever was averaged; everything ends.
"""

import os
import random
from itertools import product

import numpy as np
import pytest

from pycollectives import _testing, topology
from pycollectives.arguments import Group, creating
from pycollectives.neighbor_averaging.arguments import PairwiseArguments

CASES = int(os.environ.get("PYC_CASES", "600"))
GRAPHS = ["ring", "ring-based", "bipartite-exponential", "torus", "star", "complete"]


def run(size, graph="ring", ranks_per_node=1, **script):
    """A history, with what must hold of every one checked."""
    made = topology.by_name(graph, size)
    if script.pop("one_side_begins", True) and made.is_bipartite:
        initiates = [rank in made.sides()[0] for rank in range(size)]
    else:
        initiates = [True] * size
    script = {
        "steps": [8] * size,
        "step_time": [1.0] * size,
        "leaves": [False] * size,
        "initial": [rank + 1.0 for rank in range(size)],
        "count": 3,
        "segment_bytes": 8,
        "random": True,
        "per_step": True,
        "period": 0.3,
        "applies_zero": False,
        "seed": 0,
        "drain": 0.0,
        "latency": 0.01,
        "jitter": 0.0,
        "delivery_seed": 0,
        "max_events": 2_000_000,
        "acceleration": None,
        **script,
    }
    history = _testing.simulate_pairwise(
        size=size,
        ranks_per_node=ranks_per_node,
        neighbors=[made.in_neighbors(rank) for rank in range(size)],
        initiates=initiates,
        **script,
    )
    assert history["stuck"] == ""
    models = history["models"].reshape(size, script["count"])
    applied = 0 if script["applies_zero"] else sum(script["steps"]) * 2.0 ** (np.arange(script["count"]) % 8)
    np.testing.assert_allclose(models.sum(axis=0), sum(script["initial"]) + applied, rtol=1e-12)
    return {**history, "models": models}


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8, 16, 64])
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("ranks_per_node", [1, 3, 64])
def test_sums_are_kept_and_all_ends(size, graph, ranks_per_node):
    history = run(size, graph, ranks_per_node, jitter=0.5)
    if size > 1:
        assert sum(history["begun"]) > 0
        assert sum(history["averages"]) == 2 * sum(history["begun"])


@pytest.mark.parametrize("size", [2, 3, 4, 8])
@pytest.mark.parametrize("graph", ["ring", "complete"])
def test_sums_are_exact_where_numbers_are_dyadic(size, graph):
    """Few averages: every value is a multiple of 2**-40."""
    for seed in range(20):
        history = run(size, graph, steps=[3] * size, delivery_seed=seed, seed=seed, jitter=2.0)
        assert history["models"].sum(axis=0).tolist() == [
            size * (size + 1) / 2 + 3 * size * 2**element for element in range(3)
        ]


def test_averages_are_of_values_between_those_of_the_ranks():
    """What is on its way to another node is averaged by nobody else: else a step of it could lead beyond them."""
    for seed in range(300):
        history = run(
            5, "complete", ranks_per_node=4, steps=[1, 2, 2, 2, 0], step_time=[0.1, 2.5, 2.5, 2.5, 1.0],
            initial=[0, 128, 128, 128, 128], applies_zero=True, latency=1.0, jitter=2.0, seed=seed, delivery_seed=seed,
        )  # fmt: skip
        assert history["models"].min() >= 0
        assert history["models"].max() <= 128


@pytest.mark.parametrize("part", range(10))
def test_many_histories(part):
    """Random in everything; the seed is in the failure's text."""
    for case in range(part, CASES, 10):
        draw = random.Random(case)
        size = draw.choice([2, 3, 4, 5, 6, 7, 8, 12, 16, 33, 64]) if case % 10 else draw.randint(2, 64)
        steps = [draw.randint(0, 10) for _ in range(size)]
        print("seed", case)
        run(
            size,
            draw.choice(GRAPHS),
            draw.choice([1, 1, 2, 3, size]),
            steps=steps,
            step_time=[draw.choice([0.01, 0.1, 1.0, 10.0]) for _ in range(size)],
            leaves=[draw.random() < 0.3 for _ in range(size)],
            one_side_begins=draw.random() < 0.7,
            random=draw.random() < 0.7,
            per_step=draw.random() < 0.8,
            seed=case,
            delivery_seed=case,
            latency=draw.choice([0.0, 0.001, 0.5]),
            jitter=draw.choice([0.0, 0.01, 3.0]),
        )


def test_all_orders_of_two_and_three_ranks():
    """Small cases: many seeds of each, with messages that overtake one another freely between different ranks."""
    for size, one_side, seed in product([2, 3], [True, False], range(150)):
        run(size, "complete", one_side_begins=one_side, steps=[2] * size, delivery_seed=seed, seed=seed, jitter=1.0)


def test_a_rank_that_has_left_is_averaged_no_more():
    """Rank 0 asks before it can have heard of it."""
    history = run(2, steps=[1, 0], leaves=[False, True], latency=3.0)
    assert history["averages"] == [0, 0]
    assert history["declined"] == [1, 0]


def test_where_one_side_begins_nobody_declines_but_for_one_that_is_busy():
    """AD-PSGD, section 3.3.1: with two ranks, one of which begins, nothing can be declined."""
    history = run(2, steps=[50, 50], jitter=1.0, drain=1000.0)
    assert history["declined"] == [0, 0]
    assert history["begun"] == [50, 0]


def test_two_that_begin_decline_each_other_and_go_on():
    """Both request at the same time: both decline, and both get their turn."""
    history = run(2, steps=[20, 20], one_side_begins=False, drain=1000.0)
    assert sum(history["declined"]) > 0
    assert history["begun"] == [20, 20]


@pytest.mark.parametrize("ranks_per_node", [1, 4])
def test_one_average_per_step(ranks_per_node):
    history = run(4, "complete", ranks_per_node, steps=[10, 10, 10, 10], step_time=[1.0, 1.1, 1.2, 1.3], drain=100.0)
    assert history["begun"] == [10] * 4


def test_a_slow_rank_takes_no_step_from_the_others():
    """100x slower: the others begin as many averages as without it."""
    history = run(4, "complete", steps=[100, 100, 100, 1], step_time=[1.0, 1.0, 1.0, 100.0], drain=100.0)
    assert history["begun"] == [100, 100, 100, 1]


@pytest.mark.parametrize("ranks_per_node", [1, 2, 4])
def test_a_rate_is_the_most_that_a_rank_begins(ranks_per_node):
    """30 s of one average per 0.3 s, on nodes, between them and both; declined ones are not made up for."""
    history = run(
        4, "complete", ranks_per_node, steps=[30] * 4, per_step=False, period=0.3, latency=0.05, leaves=[True] * 4
    )
    assert max(history["begun"]) <= 101
    assert min(history["begun"]) >= 20


def test_in_turn():
    """Round-robin: the middle of a star averages with each as often."""
    history = run(5, "star", steps=[40, 0, 0, 0, 0], step_time=[1.0] * 5, random=False, drain=100.0)
    assert history["averages"] == [40, 10, 10, 10, 10]


def consensus(size, exchanges, acceleration):
    """How far ranks that apply nothing are apart in the end, over how far they were: of a ring."""
    with creating(Group(0, size, range(size)), "x"):
        arguments = PairwiseArguments(np.zeros(1), topology="ring", pace="per_step", acceleration=acceleration)
    factors = arguments.for_engine(0)["acceleration"]
    apart = []
    for seed in range(10):
        history = _testing.simulate_pairwise(
            size=size, ranks_per_node=size, neighbors=[topology.ring(size).in_neighbors(r) for r in range(size)],
            initiates=[True] * size, steps=[exchanges] * size, step_time=[1 + 0.01 * r for r in range(size)],
            leaves=[False] * size, initial=range(1, size + 1), count=1, segment_bytes=8, random=True, per_step=True,
            seed=seed, latency=0.0,
            drain=0.0, period=0.0, applies_zero=True,
            jitter=0.0, delivery_seed=seed, max_events=0, acceleration=factors,
        )  # fmt: skip
        apart.append(np.var(history["models"]))
    return np.mean(apart)


def test_a2cid2_needs_at_most_six_tenths_of_the_exchanges_on_a_ring_of_16():
    """The consensus distance that AD-PSGD reaches with 40 averages begun by each rank."""
    assert consensus(16, 24, "a2cid2") <= consensus(16, 40, None)
