"""Pairwise averaging of models on a GPU, among as many processes as tests/gpu/offline.sh launches.

With several devices, rank r uses device r modulo their number.
"""

from __future__ import annotations

import numpy as np
import pytest
from device_programs import OnDevice
from mpi4py import MPI
from pairwise_programs import check_bits

import pycollectives as pc

WORLD = MPI.COMM_WORLD

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("per_node", ["all", 1])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("acceleration", [None, "a2cid2"])
def test_mean_of_all_that_was_applied(machine, scale, per_node, dtype, acceleration):
    """Of four segments and a part of one; ranks of a node, and by messages."""
    count, steps = (1 << 22) // scale + 100, 20
    x = OnDevice(machine, np.full(count, WORLD.rank, dtype))
    with pc.Communicator(WORLD, ranks_per_node=per_node) as comm:
        with comm.pairwise_averaging(x, topology="ring", acceleration=acceleration, rate=1000) as model:
            for step in range(steps):
                x.write(np.full(count, step % 3))
                model.apply(x)
                x.write(np.full(count, -1000))
                model.read(x)
            equal = model.equalize().to_host()
        assert comm.is_same_on_all_ranks(equal)
    expected = (WORLD.size - 1) / 2 + sum(step % 3 for step in range(steps))
    np.testing.assert_allclose(equal.astype(float), expected, rtol=1e-3 if dtype == "float16" else 1e-5)
    x.free()


@pytest.mark.parametrize("per_node", ["all", 1])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("acceleration", [None, "a2cid2"])
def test_models_have_the_bits_of_the_host(machine, per_node, dtype, acceleration):
    with pc.Communicator(WORLD, ranks_per_node=per_node) as comm:
        check_bits(machine, comm, dtype, acceleration)


def test_tensors_of_pytorch():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")
    device = f"cuda:{WORLD.rank % torch.cuda.device_count()}"
    x = torch.ones(1000, device=device)
    with pc.Communicator(WORLD, ranks_per_node="all") as comm, comm.pairwise_averaging(x) as model:
        for _ in range(10):
            x.fill_(2)  # on the current stream, and overwritten at once
            model.apply(x)
            x.fill_(0)
            model.read(out=x)
        equal = torch.as_tensor(model.equalize(), device=device)
        assert torch.allclose(equal, torch.full_like(equal, 21))
