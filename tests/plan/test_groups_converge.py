"""SGD whose workers average their weights in groups: all find the optimum, better than each alone, and agree on it.

In virtual time, where workers meet whom they would meet if they computed at the same speed; and on threads with groups
that do not depend on that.
"""

import random

import numpy as np
import pytest

import pycollectives as pc
from pycollectives.groups import node_of_each
from pycollectives.simulation.groups import GroupModel
from pycollectives.testing import run_ranks

WORKERS = 16
WORKERS_PER_NODE = 4
STEPS = 1000
LIMIT = 60.0
OPTIMUM = np.linspace(9.0, 11.0, 4)

OFF, APART = 2e-3, 1e-3  # relative: from the optimum, which noise in the gradients hides, and from each other
SCATTER = 4e-4  # of weights that differ by APART, or of all but one: the standard deviation over workers

GENERATORS = [
    pc.groups.RandomGroups(3),
    pc.groups.SmartGroups(3),
    pc.groups.SmartGroups(3, inter_intra=False),
    pc.groups.PunctualGroups(3),
]


def descend(weights, step, rng):
    """A step on |w - OPTIMUM|^2 / 2 with a noisy gradient; its length decays as 1 / t."""
    gradient = weights - OPTIMUM + rng.normal(0.0, 0.25, weights.shape)
    weights -= 2 * gradient / (4 + step)


def assert_all_are_there(weights):
    relative = np.asarray(weights) / OPTIMUM
    assert np.abs(relative - 1).max() < OFF
    assert relative.std(axis=0).max() < SCATTER
    return np.ptp(relative, axis=0).max()


def in_virtual_time(generator, *, seed=0, average=True):
    """All workers' weights after STEPS of each; the real generator, and computing that varies by 2 %."""
    weights = np.zeros((WORKERS, len(OPTIMUM)))
    noise = [np.random.default_rng(worker) for worker in range(WORKERS)]
    jitter = random.Random(seed)

    def compute(worker, step):
        if step == STEPS:
            return None
        descend(weights[worker], step, noise[worker])
        return 1.0 + 0.02 * jitter.random()

    def preduce(members):
        if average:
            weights[list(members)] = weights[list(members)].mean(axis=0)
        return 0.0

    GroupModel(generator.machine(node_of_each(WORKERS, WORKERS_PER_NODE)), WORKERS, compute, preduce=preduce).run()
    return weights


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("generator", GENERATORS, ids=repr)
def test_with_a_generator(generator, seed):
    assert assert_all_are_there(in_virtual_time(generator, seed=seed)) < APART


def test_alone_they_end_further_apart():
    relative = in_virtual_time(GENERATORS[0], average=False) / OPTIMUM
    assert np.ptp(relative, axis=0).max() > 2 * APART
    assert relative.std(axis=0).max() > 2 * SCATTER


@pytest.mark.parametrize("groups", [pc.groups.RandomGroups(3), pc.groups.StaticGroups(WORKERS_PER_NODE)], ids=repr)
def test_on_threads(groups):
    """A thread that the machine runs late makes its last steps among workers that have ended, and may end apart."""

    def program(comm):
        rng = np.random.default_rng(comm.rank)
        weights = np.zeros(len(OPTIMUM))
        with comm.partial_reduce(weights, groups=groups) as pr:
            for step in range(STEPS):
                descend(weights, step, rng)
                pr.average(weights, step, timeout=LIMIT)
        return weights

    assert_all_are_there(run_ranks(WORKERS, program, ranks_per_node=WORKERS_PER_NODE))
