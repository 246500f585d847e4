"""The partial allreduce of arrays on a GPU, among as many processes as tests/gpu/offline.sh launches.

With several devices, rank r uses device r modulo their number.
"""

from __future__ import annotations

import numpy as np
import pytest
from device_programs import OnDevice, play_and_check
from mpi4py import MPI

import pycollectives as pc

WORLD = MPI.COMM_WORLD

pytestmark = pytest.mark.gpu


@pytest.fixture
def comm():
    with pc.Communicator(WORLD, ranks_per_node="all") as made:
        yield made


@pytest.mark.parametrize("seed", range(20))
def test_promises_hold_whatever_ranks_do(machine, comm, seed):
    play_and_check(machine, comm, seed)


def test_long_arrays(machine, comm, scale):
    """Of 64 MiB: more than the library copies at once where it fills."""
    count = (1 << 24) // scale
    x = OnDevice(machine, np.full(count, comm.rank + 1, "float32"))
    with comm.partial_allreduce(x, policy=pc.Full(), history=1) as ar:
        ar.contribute(x).wait()
        assert (ar.result.to_host() == comm.size * (comm.size + 1) / 2).all()
    x.free()


def test_tensors_of_pytorch(comm):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")
    device = f"cuda:{WORLD.rank % torch.cuda.device_count()}"
    x = torch.ones(1000, device=device)
    with comm.partial_allreduce(x, policy=pc.Full()) as ar:
        for _ in range(10):
            x.mul_(2)  # on the current stream, and overwritten at once
            handle = ar.contribute(x)
            given = x.clone()
            x.fill_(0)
            handle.wait()
            result = torch.as_tensor(ar.result, device=device)
            assert torch.equal(result, comm.size * given)
            x.copy_(given)
