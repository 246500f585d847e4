"""Histories of Hop in virtual time: any graph, mode and speeds, every order of messages.

At every instant Theorems 1 and 2 and Table 1 hold, and token queues have as many tokens as they should; each rank
reduces exactly what it should, with the right weights; everything ends.
"""

import os
import random

import numpy as np
import pytest
from hop_oracle import Graph, check_values, standstill

from pycollectives import topology
from pycollectives.hop.gaps import gap_bounds
from pycollectives.hop.modes import BackupWorkers, BoundedStaleness, Hybrid, NotifyAck, Skip, Standard
from pycollectives.support.native import core

CASES = int(os.environ.get("PYC_CASES", "600"))
GRAPHS = ["ring", "ring-based", "double-ring", "exponential", "hypercube", "torus", "star", "complete", "directed-ring"]
GRAPHS += ["directed", "bipartite-exponential", "two-level"]
MODES = [Standard(), NotifyAck(), BackupWorkers(1), BoundedStaleness(0), BoundedStaleness(3), Hybrid(1, 2)]
SIZES = [2, 3, 4, 5, 8, 16, 33, 64]


def graph_of(name, size):
    if name == "directed-ring":
        return topology.Topology(size, [(rank, (rank + 1) % size) for rank in range(size)])
    if name == "directed":  # a directed ring in some order, and as many edges besides
        draw = random.Random(size)
        ring = draw.sample(range(size), size)
        edges = {(a, b) for a, b in zip(ring, ring[1:] + ring[:1], strict=True) if a != b}
        return topology.Topology(size, sorted(edges | {tuple(draw.sample(range(size), 2)) for _ in range(size)}))
    if name == "two-level":  # nodes of one, two and three ranks, more often of three
        return topology.two_level([node for node in range(size) for _ in range(3 - node % 5 % 3)][:size])
    if name == "hypercube":
        size = 1 << (size.bit_length() - 1)
    if name == "double-ring":
        size = max(size // 2 * 2, 2)
    return topology.by_name(name, size)


def run(made, mode=MODES[0], *, ranks_per_node=1, max_ig=3, skip=None, serial=False, iterations=8, **script):
    """A history, with what must hold of every one checked."""
    size = made.size
    steps = [iterations] * size if isinstance(iterations, int) else iterations
    longest = max(steps)
    initial, deltas = [float(rank) for rank in range(size)], [(rank + 1) / 8 for rank in range(size)]
    script = {
        "work": [[1.0] * longest] * size,
        "stops": [None] * size,
        "leaves": False,
        "latency": 0.01,
        "jitter": 0.0,
        "delivery_seed": 0,
        "max_events": 2_000_000,
        **script,
    }
    stops = script["stops"]
    script["work"] = [time for row in script["work"] for time in row]
    graph = Graph(made)
    history = core.simulate_hop(
        size=size,
        ranks_per_node=ranks_per_node,
        count=2,
        max_ig=max_ig,
        **mode.engine_arguments(graph.size),
        skip=None if skip is None else (skip.max_jump, skip.trigger),
        serial=serial,
        **{"in": graph.incoming, "out": graph.outgoing},
        max_iterations=longest,
        iterations=steps,
        initial=initial,
        deltas=deltas,
        bounds=gap_bounds(made, mode, max_ig).ravel().tolist(),
        **script,
    )
    assert history["violation"] == ""
    assert history["open"] == ""
    if stops == [None] * size and (script["leaves"] or len(set(steps)) == 1):
        assert history["stuck"] == ""
        assert history["iterations"] == [max(n - 1, 0) for n in steps]
    check_values(
        history, graph, mode, serial=serial, initial=initial, deltas=deltas, iterations=steps, skips=skip is not None
    )
    return history


def times(draw, size, iterations, kind):
    """What computing takes: rank by iteration."""
    if kind == "random":  # 6x with probability 1/n (section 7.3.1)
        return [[6.0 if draw.random() < 1 / size else 1.0 for _ in range(iterations)] for _ in range(size)]
    if kind == "one":  # 4x, always (section 7.3.5)
        slow = draw.randrange(size)
        return [[4.0 if rank == slow else 1.0] * iterations for rank in range(size)]
    if kind == "equal":
        return [[1.0] * iterations] * size
    return [[draw.choice([0.01, 0.1, 1.0, 10.0]) for _ in range(iterations)] for _ in range(size)]


# --- Many histories


@pytest.mark.parametrize("part", range(10))
def test_many_histories(part):
    """Random in everything; the seed is in the failure's text."""
    for case in range(part, CASES, 10):
        draw = random.Random(case)
        size = draw.choice([2, 3, 4, 5, 6, 7, 8, 12, 16]) if case % 11 else draw.choice([24, 33, 64])
        made = graph_of(draw.choice(GRAPHS), size)
        degrees = [len(made.in_neighbors(rank)) for rank in range(made.size)]
        n: int | list[int] = draw.randint(1, min(degrees))
        if draw.random() < 0.3:
            n = [draw.randint(0, degree) for degree in degrees]
        s = draw.randint(0, 6)
        mode = draw.choice([Standard(), NotifyAck(), BackupWorkers(n), BoundedStaleness(s), Hybrid(n, s)])
        skip = Skip(draw.randint(1, 10), draw.randint(1, 3)) if draw.random() < 0.5 else None
        if isinstance(mode, Standard | NotifyAck):
            skip = None
        iterations = draw.randint(1, 12)
        leaves = draw.random() < 0.5
        if leaves and draw.random() < 0.5:
            iterations = [draw.randint(0, 12) for _ in range(made.size)]
        longest = max(iterations) if isinstance(iterations, list) else iterations
        print("seed", case, made, mode, skip, iterations)
        run(
            made,
            mode,
            ranks_per_node=draw.choice([1, 1, 2, 3, size]),
            max_ig=draw.choice([1, 1, 2, 3, 5, 8]),
            skip=skip,
            serial=draw.random() < 0.3,
            iterations=iterations,
            leaves=leaves,
            work=times(draw, made.size, longest, draw.choice(["random", "one", "equal", "wild"])),
            latency=draw.choice([0.0, 0.01, 1.0]),
            jitter=draw.choice([0.0, 0.5, 5.0]),
            delivery_seed=case,
        )


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("mode", MODES, ids=repr)
def test_every_graph_and_mode(size, name, mode):
    draw = random.Random(size)
    for ranks_per_node in (1, 3, size):
        made = graph_of(name, size)
        work = times(draw, made.size, 6, "random")
        run(made, mode, ranks_per_node=ranks_per_node, iterations=6, work=work, jitter=0.5, delivery_seed=size)


# --- One worker stopped for ever


@pytest.mark.parametrize("ranks_per_node", [1, 64])
@pytest.mark.parametrize("size", [2, 3, 8, 16])
@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("mode", MODES, ids=repr)
@pytest.mark.parametrize("max_ig", [1, 4])
@pytest.mark.parametrize("serial", [False, True], ids=["parallel", "serial"])
def test_a_worker_that_stops_holds_up_the_others_as_far_as_the_paper_says(
    serial, mode, name, size, ranks_per_node, max_ig
):
    """In iteration 2. Where the others end follows from the rules alone, without any time."""
    made = graph_of(name, size)
    stops = [2] + [None] * (made.size - 1)
    history = run(
        made, mode, ranks_per_node=ranks_per_node, max_ig=max_ig, serial=serial, iterations=40, stops=stops, jitter=1.0,
        work=times(random.Random(size), made.size, 40, "random"),
    )  # fmt: skip
    assert history["iterations"] == standstill(Graph(made), mode, max_ig, 0, 2, 40, serial=serial)


@pytest.mark.parametrize(("mode", "ends"), [
    (Standard(), [2, 3, 4, 5, 4, 3]),
    (BoundedStaleness(3), [2, 6, 10, 14, 10, 6]),
    (BackupWorkers(2), [2, 7, 12, 17, 12, 7]),
    (Hybrid(2, 3), [2, 7, 12, 17, 12, 7]),
], ids=repr)  # fmt: skip
def test_the_bounds_of_table_1_are_reached(mode, ends):
    """On a ring of six whose rank 0 stops in iteration 2, max_ig = 5; where all neighbors are backups, tokens bind."""
    made = topology.ring(6)
    history = run(made, mode, max_ig=5, iterations=60, stops=[2] + [None] * 5)
    assert history["iterations"] == ends
    assert [n - 2 for n in ends] == gap_bounds(made, mode, 5)[:, 0].tolist()


def test_backup_workers_of_some_ranks():
    """Fig. 8 has N_buw of each rank: those beside rank 0 go on without it, up to their tokens, the others follow."""
    history = run(topology.ring(6), BackupWorkers([0, 1, 0, 0, 0, 1]), max_ig=5, iterations=60, stops=[2] + [None] * 5)
    assert history["iterations"] == [2, 7, 8, 9, 8, 7]


def test_in_the_serial_graph_a_worker_that_computes_has_not_sent():
    """So its neighbors stop one iteration earlier than in the parallel graph: in the one that it is in itself."""
    made, stops = topology.ring(6), [2] + [None] * 5
    for serial, ends in [(False, [2, 3, 4, 5, 4, 3]), (True, [2, 2, 3, 4, 3, 2])]:
        history = run(made, Standard(), max_ig=5, serial=serial, iterations=60, stops=stops)
        assert history["iterations"] == ends


def test_a_rank_that_needs_one_of_two_updates_is_bound_by_the_faster_neighbor():
    """Tighter than Table 1: rank 3 of the same ring has tokens for iteration 17, and no update of 13."""
    stops = [2] + [None] * 5
    history = run(topology.ring(6), BackupWorkers(1), max_ig=5, iterations=60, stops=stops)
    assert history["iterations"] == [2, 7, 12, 13, 12, 7]


def test_notify_ack_is_two_apart_where_updates_go_one_way():
    """On a directed ring: a rank waits for its receiver's acknowledgement, here in iteration 2 of rank 0."""
    made = graph_of("directed-ring", 6)
    history = run(made, NotifyAck(), max_ig=5, iterations=30, stops=[2] + [None] * 5)
    assert history["iterations"][5] == 2 + 1  # sends of iteration 3 wait: its receiver has not reduced iteration 2
    assert gap_bounds(made, NotifyAck(), None)[5, 0] == 2


# --- Skipping iterations


@pytest.mark.parametrize("ranks_per_node", [1, 16])
@pytest.mark.parametrize("mode", [BackupWorkers(1), BoundedStaleness(5)], ids=repr)
def test_a_straggler_that_skips_holds_nobody_up(mode, ranks_per_node):
    """Section 7.3.5: one of 16 workers 4x slower; jumps of up to 10."""
    made, slow = topology.ring_based(16), 3
    work = [[4.0 if rank == slow else 1.0] * 120 for rank in range(16)]
    end = {}
    for skip in (None, Skip(2), Skip(10)):
        history = run(
            made, mode, ranks_per_node=ranks_per_node, max_ig=5, iterations=120, work=work, skip=skip, latency=0.0
        )
        end[skip] = max(time for what, rank, _, time, _, _ in history["entries"] if rank != slow)
        if skip is None:
            assert history["ranks"][slow]["skipped"] == 0
        else:
            assert history["ranks"][slow]["jumps"] > 0
            assert sum(rank["jumps"] for rank in history["ranks"]) == history["ranks"][slow]["jumps"]
    assert end[None] > 3.7 * 120
    assert end[Skip(10)] < 1.3 * 120
    assert end[Skip(10)] <= end[Skip(2)] < end[None]


@pytest.mark.parametrize("ranks_per_node", [1, 6])
def test_a_jump_does_not_wait_for_ranks_that_wait_for_its_tokens(ranks_per_node):
    """In-neighbors of rank 0 are at most max_ig ahead of it, its out-neighbors twice as far."""
    in_both = [(1, 2), (1, 3), (2, 3), (4, 5)]
    edges = [(0, 1), (0, 2), (3, 4), (3, 5), (4, 0), (5, 0), *in_both, *((b, a) for a, b in in_both)]
    work = [[100.0] + [1.0] * 29] + [[1.0] * 30] * 5
    history = run(
        topology.Topology(6, edges), BackupWorkers(1), max_ig=5, iterations=30, work=work, skip=Skip(10),
        ranks_per_node=ranks_per_node,
    )  # fmt: skip
    assert history["stuck"] == ""
    of_0 = [(what, k) for what, rank, k, *_ in history["entries"] if rank == 0]
    assert of_0[:4] == [("entered", 0), ("stepped", 0), ("renewed", 4), ("entered", 5)]


def test_figure_10():
    """(b) backup workers: B and C wait for tokens of A in iteration 0, five ahead; A goes on to where they are."""
    made = topology.complete(3)
    work = [[100.0] * 12, [1.0] * 12, [1.0] * 12]
    history = run(made, BackupWorkers(1), max_ig=5, iterations=12, work=work, skip=Skip(10))
    of_a = [(what, k) for what, rank, k, _, _, _ in history["entries"] if rank == 0]
    assert of_a[:4] == [("entered", 0), ("stepped", 0), ("renewed", 4), ("entered", 5)]
    assert history["ranks"][0] == {**history["ranks"][0], "iterations": 4, "jumps": 2, "skipped": 8}


def test_a_jump_is_as_long_as_said_and_begins_when_said():
    made, work = topology.complete(3), [[100.0] * 12, [1.0] * 12, [1.0] * 12]
    for skip, second in [(Skip(2), 2), (Skip(1), 1), (Skip(10, trigger=4), 5), (Skip(10, trigger=5), 1)]:
        history = run(made, BackupWorkers(1), max_ig=5, iterations=12, work=work, skip=skip)
        assert [k for what, rank, k, *_ in history["entries"] if (what, rank) == ("entered", 0)][1] == second


# --- What is sent and kept


@pytest.mark.parametrize("ranks_per_node", [1, 16])
def test_stale_updates_are_not_sent(ranks_per_node):
    """Section 6.2: a straggler's updates are too late for everybody under backup workers."""
    made = topology.ring_based(16)
    work = [[4.0 if rank == 3 else 1.0] * 40 for rank in range(16)]
    history = run(made, BackupWorkers(1), ranks_per_node=ranks_per_node, iterations=40, work=work, latency=0.0)
    assert history["ranks"][3]["unsent"] > 90
    assert max(rank["unsent"] for number, rank in enumerate(history["ranks"]) if number != 3) < 40  # its neighbors'


def test_backup_workers_are_faster_than_standard_under_random_slowdown():
    """The model of zero cost says 1.38 to 1.42x for one backup worker (section 7.3.3 has up to 1.81x)."""
    draw = random.Random(3)
    work = times(draw, 16, 300, "random")

    def speed(mode, max_ig=5):
        history = run(topology.ring_based(16), mode, max_ig=max_ig, iterations=300, work=work, latency=0.0)
        return 1 / np.mean([time for what, _, k, time, *_ in history["entries"] if what == "stepped" and k == 299])

    standard = speed(Standard())
    assert speed(BackupWorkers(1)) / standard > 1.3
    assert speed(BoundedStaleness(5)) / standard > 1.4
    assert speed(NotifyAck()) / standard < 1.0
