"""The partial reduce of arrays on a GPU, among as many processes as tests/gpu/offline.sh launches.

With several devices, rank r uses device r modulo their number.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
from device_programs import OnDevice
from mpi4py import MPI

import pycollectives as pc
from pycollectives.support.native import core

WORLD = MPI.COMM_WORLD

pytestmark = pytest.mark.gpu


@pytest.fixture(params=["all", 1], ids=["board", "through the host"])
def comm(request):
    with pc.Communicator(WORLD, ranks_per_node=request.param) as made:
        yield made


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("count", [1, 20_000, 1_000_001])
def test_results_are_those_of_the_host_bit_for_bit(machine, comm, scale, dtype, count):
    count = -(-count // scale)
    rng = np.random.default_rng(comm.rank)
    x, host = OnDevice(machine, np.zeros(count, dtype)), np.zeros(count, dtype)
    groups = pc.groups.StaticGroups(2)
    with (
        comm.partial_reduce(x, groups=groups) as on_device,
        comm.partial_reduce(host, groups=groups) as on_host,
    ):
        for _ in range(8):
            host[:] = rng.standard_normal(count)
            x.write(host)
            assert on_device.average(x).group == on_host.average(host).group
            if count > 1:
                assert x.get().tobytes() == host.tobytes()
            else:  # so short values go by messages on the host
                np.testing.assert_allclose(x.get(), host)
    x.free()


@pytest.mark.parametrize(
    "groups", [pc.groups.RandomGroups(2), pc.groups.SmartGroups(2), pc.groups.PunctualGroups(2)], ids=repr
)
def test_an_average_keeps_equal_weights(machine, comm, groups):
    pattern = np.arange(100_003, dtype=np.float32) % 7
    x = OnDevice(machine, pattern)
    with comm.partial_reduce(x, groups=groups) as pr:
        for _ in range(10 + comm.rank):
            assert comm.rank in pr.average(x).group
            np.testing.assert_array_equal(x.get(), pattern)
    x.free()


def test_tensors_of_pytorch(comm):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")
    device = f"cuda:{WORLD.rank % torch.cuda.device_count()}"
    x = torch.empty(1000, device=device)
    with comm.partial_reduce(x, groups=pc.groups.StaticGroups(comm.size)) as pr:
        for step in range(1, 20, 2):
            x.fill_(comm.rank + step)  # on the current stream
            pr.average(x, step)
            assert torch.equal(x, torch.full_like(x, step + (comm.size - 1) / 2))


def test_there_is_a_device():
    found = core.cuda_availability()
    assert found["reason"] == ""
    assert found["driver_version"] >= 11000
    for number, device in enumerate(found["devices"]):
        assert device["bytes"] > 0
        assert re.fullmatch(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.0", device["pci_bus_id"])
        assert device["why_not_shared"] == ""  # else what is tested here cannot be
        assert device["reaches"][number]
