"""Calls of Hop that are given up at any moment, and repeated, as if they had waited; ranks as threads."""

import random

import numpy as np
import pytest
from neighbor_oracle import SHAPES

import pycollectives as pc
from pycollectives import topology
from pycollectives.hop.modes import parse
from pycollectives.testing import run_ranks

STEPS = 25
LIMITS = [0, 0, 1e-6, 1e-4, 1e-3]


def run(size, graph, seed, ranks_per_node, **options):
    """Each rank's last value and statistics; it starts with its number, and adds 1 in each iteration."""

    def repeated(draw, call):
        while True:
            try:
                return call(draw.choice(LIMITS))
            except pc.StallError:
                continue

    def program(comm):
        draw, done = random.Random(f"{seed} {comm.rank}"), -1
        hop = comm.hop(np.full(300, float(comm.rank)), topology=graph, max_ig=2, **options)
        while done < STEPS - 1:
            left = STEPS - 1 - done
            done = repeated(draw, lambda limit, left=left: next(hop.iterations(left, timeout=limit)))
            repeated(draw, lambda limit: hop.step(np.ones(300), timeout=limit))
            assert np.ptp(hop.parameters) == 0
        assert done == STEPS - 1
        return float(hop.parameters[0]), hop.statistics()

    delay = random.Random(seed).choice([0.0, 1e-3])
    return run_ranks(size, program, ranks_per_node=ranks_per_node, delay=delay, seed=seed, check=True)


@pytest.mark.parametrize("ranks_per_node", SHAPES)
@pytest.mark.parametrize("computation", ["parallel", "serial"])
@pytest.mark.parametrize("mode", ["standard", "notify-ack"])
@pytest.mark.parametrize("seed", range(3))
def test_what_follows_from_the_graph_alone_is_the_same(seed, mode, computation, ranks_per_node):
    size = 2 + seed
    graph = [topology.ring, topology.complete, topology.exponential][seed](size)
    w, matrix = np.arange(size, dtype=float), graph.matrix("uniform")
    for _ in range(STEPS):
        w = matrix @ w + 1 if computation == "parallel" else matrix @ (w + 1)
    results = run(size, graph, seed, ranks_per_node, mode=mode, computation=computation)
    np.testing.assert_allclose([value for value, _ in results], w)


@pytest.mark.parametrize("ranks_per_node", SHAPES)
@pytest.mark.parametrize("mode", ["backup:1", "staleness:2", "hybrid:1:2", "backup:1+skip:4", "staleness:3+skip:3"])
def test_every_iteration_is_taken_or_skipped_once(mode, ranks_per_node):
    kind, skip = parse(mode)
    for value, done in run(4, topology.complete(4), 5, ranks_per_node, mode=kind, skip=skip):
        assert done.iterations + done.skipped == STEPS
        assert value >= (0 if skip else done.iterations / 2)
