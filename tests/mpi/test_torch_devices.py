"""EagerOptimizer where gradients are not in memory of the host that the engine reads: staged, or on a device.

There is no GPU in it. Staging is that of tensors of the host, which takes the same way; the device is a simulated one,
see `device_tensors`. tests/gpu has both on a GPU.
"""

from __future__ import annotations

import contextlib
import gc
import random

import pytest
from device_programs import simulated_device
from devices import HAS_CUDA
from mpi4py import MPI
from oracle import LIMIT

torch = pytest.importorskip("torch")

from device_tensors import use_tensors_on  # noqa: E402

import pycollectives as pc  # noqa: E402
from pycollectives.torch import (  # noqa: E402
    DecentralizedOptimizer,
    EagerOptimizer,
    arguments,
)

WORLD = MPI.COMM_WORLD
DEVICE = pytest.param("device", marks=pytest.mark.skipif(not HAS_CUDA, reason="built with PYC_CUDA=OFF"))

torch.set_num_threads(1)


@contextlib.contextmanager
def gradients_in(memory, seed=0):
    """Gradients of optimizers that are made in the block reach the partial allreduce from there."""
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        patch.setattr(arguments, "memory_for", lambda device, staged, *, continues: (memory, ""))
        if memory == "device":
            machine = stack.enter_context(simulated_device(seed * WORLD.size + WORLD.rank))
            use_tensors_on(machine, patch)
        with pc.Communicator(WORLD, ranks_per_node="all", timeout=LIMIT) as comm:
            yield comm
        gc.collect()  # means, which hold memory of the device


def trained(memory, dtype=torch.float32, **options):
    """The parameters after some steps on gradients of each rank's own: whole numbers, whose sums have no order."""
    draw = torch.Generator().manual_seed(WORLD.rank)
    parameters = [
        torch.nn.Parameter(torch.full(shape, WORLD.rank + 0.1, dtype=dtype)) for shape in ((5, 16), (16,), (3,))
    ]
    inner = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    with gradients_in(memory) as comm:
        with EagerOptimizer(inner, comm, pc.Full(), bucket_bytes=200, **options) as optimizer:
            assert optimizer.memory == memory
            for _ in range(6):
                optimizer.zero_grad()
                gradients = [torch.randint(-99, 99, one.shape, generator=draw) for one in parameters]
                sum((one * gradient).sum() for one, gradient in zip(parameters, gradients, strict=True)).backward()
                optimizer.step()
            optimizer.finish()
        del optimizer
    return [parameter.detach().clone() for parameter in parameters]


@pytest.mark.parametrize("memory", ["staged", DEVICE])
@pytest.mark.parametrize(
    ("dtype", "average"),
    [(torch.float32, "world"), (torch.bfloat16, "contributors"), (torch.float64, "contributors")],
    ids=str,
)
def test_parameters_are_those_of_training_on_the_host_bit_for_bit(memory, dtype, average):
    expected = trained("host", dtype, divide_by=average)
    for ours, theirs in zip(trained(memory, dtype, divide_by=average), expected, strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("memory", ["staged", DEVICE])
@pytest.mark.parametrize("policy", [pc.Solo(), pc.Quorum(1 + WORLD.size // 2)], ids=repr)
def test_no_gradient_of_a_straggler_is_lost(memory, policy):
    """Whole numbers, so that sums are exact; ranks make different numbers of steps, one after the other's meet."""
    draw = random.Random(WORLD.rank)
    parameters = [torch.nn.Parameter(torch.zeros(n, dtype=torch.float64)) for n in (1, 7_000, 3)]
    total = torch.zeros(3, dtype=torch.float64)
    with gradients_in(memory, seed=3) as comm:
        inner = torch.optim.SGD(parameters, lr=1.0)
        with EagerOptimizer(inner, comm, policy, missed="sum", bucket_bytes=8, timeout=LIMIT) as optimizer:
            for _ in range(2 + 3 * WORLD.rank):
                optimizer.zero_grad()
                factors = [draw.randrange(-9, 10) * WORLD.size for _ in parameters]
                total += torch.tensor(factors)
                sum(parameter.sum() * factor for parameter, factor in zip(parameters, factors, strict=True)).backward()
                optimizer.step()
        del optimizer
    everything = sum(WORLD.allgather(total))
    for parameter, contributed in zip(parameters, everything, strict=True):
        assert set(parameter.tolist()) == {-contributed.item() / WORLD.size}


@pytest.mark.parametrize("memory", ["staged", DEVICE])
def test_an_exception_closes_it_at_once(memory):
    with gradients_in(memory, seed=5) as comm:
        (parameter,) = parameters = [torch.nn.Parameter(torch.zeros(2))]
        optimizer = EagerOptimizer(torch.optim.SGD(parameters), comm)
        with (
            pytest.warns(RuntimeWarning, match="0 contributions discarded"),
            pytest.raises(ZeroDivisionError),
            optimizer,
        ):
            raise ZeroDivisionError
        assert optimizer.closed
        del optimizer, parameter


def test_staged_is_shown():
    with pc.Communicator(WORLD, timeout=LIMIT) as comm:
        parameters = [torch.nn.Parameter(torch.zeros(2))]
        with EagerOptimizer(torch.optim.SGD(parameters), comm, staged=True) as optimizer:
            assert optimizer.memory == "staged"
            assert "1 buckets staged through the host" in repr(optimizer)
        with EagerOptimizer(torch.optim.SGD(parameters), comm) as optimizer:
            assert optimizer.memory == "host"
            assert "staged" not in repr(optimizer)
        with DecentralizedOptimizer(torch.optim.SGD(parameters), comm) as optimizer:
            assert optimizer.memory == "host"
            assert "staged" not in repr(optimizer)


def test_rank_0_warns_of_staging_that_nobody_asked_for():
    with pc.Communicator(WORLD, timeout=LIMIT) as comm, pytest.MonkeyPatch.context() as patch:
        patch.setattr(arguments, "memory_for", lambda device, staged, *, continues: ("staged", "the moon is full"))
        expected = (
            pytest.warns(RuntimeWarning, match="staged through the host, since the moon is full; pass staged=True")
            if WORLD.rank == 0
            else contextlib.nullcontext()
        )
        with expected:
            optimizer = EagerOptimizer(torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))]), comm)
        optimizer.close()
