"""P-Reduce and partial reduce over MPI."""

from __future__ import annotations

import itertools
import time
import zlib

import numpy as np
import pytest
from mpi4py import MPI
from oracle import LIMIT

import pycollectives as pc

pytestmark = pytest.mark.one_communicator

WORLD = MPI.COMM_WORLD
GENERATORS = [
    pc.groups.RandomGroups(2),
    pc.groups.RandomGroups(8),
    pc.groups.SmartGroups(2),
    pc.groups.PunctualGroups(2),
    pc.groups.StaticGroups(2),
]


@pytest.mark.parametrize("count", [0, 3, 100_000, 1_500_000])
@pytest.mark.parametrize("op", ["SUM", "AVG", "MAX"])
def test_preduce(comm, op, count):
    """Among the first ranks, and among the last; nobody else is touched. On a node the longest go piece by piece."""
    expected = {"SUM": sum, "MAX": max, "AVG": lambda values: sum(values) / len(values)}[op]
    for members in range(1, comm.size + 1):
        for group in (range(members), range(comm.size - members, comm.size)):
            x = np.full(count, comm.rank + 1.0, np.float32)
            if comm.rank in group:
                comm.preduce(x, reversed(group), op=op, timeout=LIMIT)
                assert (x == np.float32(expected([rank + 1.0 for rank in group]))).all()
            else:
                assert (x == comm.rank + 1).all()


def test_overlapping_groups(comm):
    """All pairs and fours in one order; averages of powers of two are exact."""
    groups = [*itertools.combinations(range(comm.size), 2), *itertools.combinations(range(comm.size), 4)]
    groups = [groups[i] for i in np.random.default_rng(1).permutation(len(groups))][:15]
    x = np.array([2.0**30 * comm.rank])
    state = 2.0**30 * np.arange(comm.size)
    for group in groups:
        if comm.rank in group:
            comm.preduce(x, group, timeout=LIMIT)
        state[list(group)] = state[list(group)].mean()
    assert x[0] == state[comm.rank]


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("generator", GENERATORS, ids=repr)
@pytest.mark.parametrize("count", [5, 200_000, 400_000])
def test_all_members_of_a_group_get_the_same(comm, generator, count):
    if not isinstance(generator, pc.groups.StaticGroups) and generator.size > comm.size:
        pytest.skip("more members than ranks")
    pattern = 64 * (np.arange(count) % 7).astype(np.float32)
    weights = pattern + np.float32(2.0**20 * comm.rank)
    log = {}
    with comm.partial_reduce(weights, groups=generator, coordinator_rank=comm.size - 1) as pr:
        for _ in range(10 + comm.rank):
            info = pr.average(weights, timeout=LIMIT)
            assert comm.rank in info.group
            assert np.ptp(weights - pattern) < 1  # rounding apart
            log[info.sequence, info.group] = zlib.crc32(weights)
    told = {}
    for of_rank in WORLD.allgather(log):
        for key, value in of_rank.items():
            assert told.setdefault(key, value) == value
    assert any(len(group) > 1 for _, group in told)


@pytest.mark.mpi(min_size=2)
def test_without_the_group_buffer_weights_are_not_torn(comm):
    """`sync` then performs groups of which it does not tell."""
    weights = np.full(200_000, 2.0**20 * (comm.rank + 1), np.float32)
    with comm.partial_reduce(weights, groups=pc.groups.RandomGroups(2, group_buffer=False)) as pr:
        for _ in range(10):
            assert comm.rank in pr.average(weights, timeout=LIMIT).group
            assert (weights == weights[0]).all()
    assert 2.0**20 <= weights[0] <= 2.0**20 * comm.size


def test_a_rank_that_leaves_takes_part_with_its_final_weights(comm):
    if comm.size != 2:
        pytest.skip("for two ranks")
    weights = np.full(2, 8.0 * comm.rank)
    with comm.partial_reduce(weights, groups=pc.groups.RandomGroups(2)) as pr:
        if comm.rank == 0:
            assert pr.average(weights, timeout=LIMIT).group == (0, 1)
            assert weights.tolist() == [4.0, 4.0]
            assert pr.average(weights, timeout=LIMIT).group == (0,)
        else:
            time.sleep(0.3)
            pr.leave(weights)


@pytest.mark.mpi(min_size=2)
def test_a_stall_names_who_has_not_come(comm):
    weights = np.full(2, float(comm.rank))
    with comm.partial_reduce(weights, groups=pc.groups.StaticGroups(comm.size), name="weights") as pr:
        pr.average(weights, step=0, timeout=LIMIT)
        if comm.rank == comm.size - 1:
            WORLD.Barrier()
        else:
            with pytest.raises(pc.StallError, match=f"in step 1: have not come: rank {comm.size - 1}."):
                pr.average(weights, timeout=0.3)
            WORLD.Barrier()
