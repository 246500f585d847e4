"""What `bench/overlap.py` verifies: that a method trains the weights that one rank finds from the batches of all."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

BENCH = Path(__file__).resolve().parents[3] / "bench"
sys.path.insert(0, str(BENCH))

from common.cli import RunError  # noqa: E402
from common.training import Together, Workload  # noqa: E402

WORKLOAD = Workload("mlp", width=4, batch=8, seed=3, bucket_bytes=1)
CALLS = 5


class Alone(Together):
    """Skips its averaging."""


def train(method, ranks, *, of_rank_0=lambda weights: weights):
    """A block on rank 0, as far as it communicates only to verify."""
    comm = SimpleNamespace(rank=0, size=ranks, bcast=of_rank_0, allreduce=lambda right, _: right)
    subject = method(comm, WORKLOAD, None, {CALLS: WORKLOAD.trained(ranks, CALLS)})
    step = subject.open(0, CALLS)
    for call in range(CALLS):
        subject.prepare(call)
        step()
    subject.close()


def test_alone_one_rank_is_right():
    train(Alone, 1)


def test_a_method_that_skips_its_averaging_is_found_out():
    with pytest.raises(RunError, match="the weights after block 0 are not those of synchronous SGD"):
        train(Alone, 2)


def test_a_method_that_skips_steps_is_found_out():
    class Skips(Alone):
        def prepare(self, call):
            super().prepare(call)
            self._optimizer.param_groups[0]["lr"] *= call < 3

    with pytest.raises(RunError, match="are not those of synchronous SGD"):
        train(Skips, 1)


def test_replicas_that_differ_in_a_bit_are_found_out():
    with pytest.raises(RunError, match="are not those of synchronous SGD"):
        train(Alone, 1, of_rank_0=lambda weights: weights + 2.0**-23)
