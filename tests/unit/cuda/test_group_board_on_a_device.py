"""The board of groups with its slots on a device: simulated driver, all ranks of a node in one process.

Which rank goes on, and the order of the work of all streams, are drawn by a seed. tests/mpi/test_device_groups.py has
ranks that are processes.
"""

from __future__ import annotations

import os
import random

import numpy as np
import pytest
from devices import Simulated, needs_cuda
from group_boards import DeviceNode, Node, drawn_plan
from nightly import nightly_unless

from pycollectives import _testing

RANKS = 4
ORDERS = int(os.environ.get("PYC_CASES", "2000"))
PARTS = 8
NOT_SUPPORTED = 801
GROUPS = 3

pytestmark = needs_cuda


def values_of(seed: int, ranks: int, count: int, dtype: str) -> list[np.ndarray]:
    """Of which the sum, if they are floats, depends on its order."""
    rng = np.random.default_rng(seed)
    if dtype.startswith("int"):
        return list(rng.integers(-99, 99, (ranks, count)).astype(dtype))
    return list((rng.standard_normal((ranks, count)) * 10.0 ** rng.integers(-2, 3, (ranks, 1))).astype(dtype))


def play(seed: int, dtype: str, op: str = "AVG", *, weighted: bool = False) -> None:
    """The same groups on the host and on a device: the same bits, whoever goes on when."""
    rng = random.Random(seed)
    count, pieces = rng.choice([1, 64, 65, 150]), rng.choice([1, 1, 2, 3])
    shape = (RANKS, count, dtype, op, weighted, pieces)
    plan = drawn_plan(rng, RANKS, GROUPS)
    host = Node(*shape, values=values_of(seed, RANKS, count, dtype))
    device = DeviceNode(Simulated(seed), *shape, values=values_of(seed, RANKS, count, dtype))
    for node in (host, device):
        for group in plan:
            node.plan(*group)
        node.run(rng)
    assert device.taken.keys() == host.taken.keys()
    for where, result in host.taken.items():
        assert device.taken[where].tobytes() == result.tobytes(), where
    device.end(rng)


@pytest.mark.parametrize("part", nightly_unless(lambda part: part < 2, range(PARTS)))
def test_in_every_order_of_streams_and_ranks(part):
    """In all, 2000 of the simulated driver's work and of ranks."""
    for case in range(part, ORDERS, PARTS):
        try:
            play(1000 + case, ("float32", "float64")[case // PARTS % 2], weighted=case // PARTS % 3 == 0)
        except AssertionError as error:
            raise AssertionError(f"simulated driver, seed {1000 + case}: {error}") from error


@pytest.mark.parametrize(
    ("dtype", "op"),
    [("float16", "AVG"), ("int8", "AVG"), ("int64", "AVG"), ("float64", "MAX"), ("float32", "MIN"), ("int32", "SUM")],
)
def test_every_type_has_the_bits_of_the_host(dtype, op):
    for seed in range(10):
        play(seed, dtype, op)


def test_weights_of_halves_have_the_bits_of_the_host():
    for seed in range(10):
        play(seed, "float16", weighted=True)


@pytest.mark.parametrize("nth", [1, 2, 5, 9])
@pytest.mark.parametrize("call", ["cuLaunchKernel", "cuEventRecord", "cuEventQuery"])
def test_an_error_is_raised_and_everything_can_be_released(call, nth):
    rng = random.Random(nth)
    node = DeviceNode(Simulated(nth), RANKS, 150, "float16")
    for ticket in range(1, 6):
        node.plan(ticket, range(RANKS))
    for rank in range(RANKS):
        node.step(rank)
    node.machine.driver.fail(call, nth, NOT_SUPPORTED)
    with pytest.raises(RuntimeError, match=rf"^CUDA: {call}: CUDA_ERROR_OF_SIMULATION \(simulated driver\)"):
        for _ in range(100_000):
            node.boards.advance(rng.randrange(RANKS))
    node.end(rng)


def test_a_slot_is_freed_when_nobody_has_it_mapped():
    node = DeviceNode(Simulated(1), RANKS, 10, "float32")
    assert not any(node.boards.release(0) for _ in range(50))
    for rank in range(1, RANKS):
        for _ in range(50):
            node.boards.release(rank)
    assert all(node.boards.release(rank) for rank in range(RANKS))
    node.end(random.Random(0))


def test_more_ranks_than_a_kernel_has_operands():
    machine = Simulated(1)
    with pytest.raises(RuntimeError, match="on CUDA devices expected at most 64 ranks of a node, got 65"):
        _testing.GroupBoards(ranks=65, slot_bytes=8, executor=machine.executor)
    machine.end()
