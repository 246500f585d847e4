"""EagerOptimizer, DecentralizedOptimizer and the training command on a GPU, beside the host; offline.sh launches it.

With several devices, rank r uses device r modulo their number.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from mpi4py import MPI
from oracle import LIMIT

torch = pytest.importorskip("torch")

import pycollectives as pc  # noqa: E402
from pycollectives.torch import DecentralizedOptimizer, EagerOptimizer  # noqa: E402
from pycollectives.train import job  # noqa: E402
from pycollectives.train.settings import Settings  # noqa: E402
from pycollectives.train.synchronizers import METHODS  # noqa: E402

pytestmark = pytest.mark.gpu

WORLD = MPI.COMM_WORLD

OPTIONS = {"m-synchronous": f"m-synchronous,m={WORLD.size}"}
TRAINED = {"model": "cnn,width=4", "batch": 16 * WORLD.size, "epochs": 1, "optimizer": "sgd,rate=0.05,momentum=0.9"}
STAGED = [None, True]


@pytest.fixture(autouse=True)
def device():
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")
    number = WORLD.rank % torch.cuda.device_count()
    with torch.cuda.device(number):
        yield torch.device("cuda", number)


@pytest.fixture
def comm():
    with pc.Communicator(WORLD, ranks_per_node="all", timeout=LIMIT) as made:
        yield made


@pytest.fixture
def output(tmp_path):
    """One folder for all ranks."""
    folder = WORLD.bcast(tmp_path)
    yield folder
    WORLD.Barrier()


def whole_numbers(like, draw):
    """Gradients whose sums have no order, so that results of the host and of a device have the same bits."""
    return [torch.randint(-99, 99, one.shape, generator=draw).to(one) * WORLD.size for one in like]


def backward(parameters, gradients):
    sum((one * gradient).sum() for one, gradient in zip(parameters, gradients, strict=True)).backward()


def parameters_on(device, dtype=torch.float32):
    """Other values on each rank: all begin with rank 0's."""
    shapes = ((50, 16), (16,), (100_000,), (3,))
    return [torch.nn.Parameter(torch.full(shape, WORLD.rank + 0.5, dtype=dtype, device=device)) for shape in shapes]


def trained(comm, parameters, policy, steps, **options):
    inner = torch.optim.SGD(parameters, lr=2**-6)
    draw = torch.Generator().manual_seed(WORLD.rank)
    with EagerOptimizer(inner, comm, policy, bucket_bytes=2000, **options) as optimizer:
        for _ in range(steps):
            optimizer.zero_grad()
            backward(parameters, whole_numbers(parameters, draw))
            optimizer.step()
        optimizer.flush()
        memory = optimizer.memory
    return memory, [parameter.detach().cpu() for parameter in parameters]


@pytest.mark.parametrize("staged", STAGED)
@pytest.mark.parametrize("policy", [pc.Solo(), pc.Majority(seed=7), pc.Full()], ids=repr)
def test_eager_optimizer_has_the_parameters_of_the_host(comm, device, policy, staged):
    """Ranks make different numbers of steps, but under Full; every gradient counts once, whenever it comes."""
    steps = 6 if policy == pc.Full() else 3 + 2 * WORLD.rank
    memory, found = trained(comm, parameters_on(device), policy, steps, staged=staged)
    assert memory == ("staged" if staged else "device")
    _, expected = trained(comm, parameters_on("cpu"), policy, steps)
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.equal(ours, theirs)
        assert comm.is_same_on_all_ranks(ours.numpy())


@pytest.mark.parametrize("staged", STAGED)
def test_halves_clipping_and_streams(comm, device, staged):
    """Averages are clipped between the two halves of a step, on a stream that is not the default one."""
    norms = []
    for where in (device, "cpu"):
        parameters = parameters_on(where, torch.bfloat16)
        optimizer = EagerOptimizer(torch.optim.AdamW(parameters), comm, pc.Full(), staged=staged)
        draw = torch.Generator().manual_seed(WORLD.rank)
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream), optimizer:
            for _ in range(5):
                optimizer.zero_grad()
                backward(parameters, whole_numbers(parameters, draw))
                optimizer.average_gradients()
                norms.append(torch.nn.utils.clip_grad_norm_(parameters, 1.0).item())
                optimizer.step()
            optimizer.finish()
    assert norms[:5] == pytest.approx(norms[5:], rel=1e-2)


def test_state_and_buffers_of_rank_0_arrive_on_the_device(comm, device):
    torch.manual_seed(WORLD.rank)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2)).to(device)
    inner = torch.optim.Adam(model.parameters())
    if WORLD.rank == 0:  # as if it had loaded a checkpoint
        model(torch.randn(9, 4, device=device)).sum().backward()
        inner.step()
    with EagerOptimizer(inner, comm, model=model) as optimizer:
        moments = [inner.state[parameter]["exp_avg"] for parameter in model.parameters()]
        for tensor in (*moments, *model.buffers()):
            assert tensor.device == device
            assert comm.is_same_on_all_ranks(tensor.cpu().numpy())
        model(torch.randn(9, 4, device=device)).sum().backward()
        optimizer.step()
        assert optimizer.average(torch.tensor(float(WORLD.rank), device=device)) == (WORLD.size - 1) / 2
        optimizer.finish()
    for tensor in (*model.parameters(), *model.buffers()):
        assert comm.is_same_on_all_ranks(tensor.detach().cpu().numpy())


@pytest.mark.parametrize("method", ["ad-psgd", "d-psgd", "sgp", "hop"])
def test_decentralized_optimizer_is_staged(comm, device, method):
    parameters = parameters_on(device)
    draw = torch.Generator().manual_seed(WORLD.rank)
    with DecentralizedOptimizer(torch.optim.SGD(parameters, lr=2**-6), comm, method) as optimizer:
        assert optimizer.memory == "staged"
        for _ in range(5):
            optimizer.zero_grad()
            backward(parameters, whole_numbers(parameters, draw))
            optimizer.step()
        optimizer.finish()
    assert all(comm.is_same_on_all_ranks(parameter.detach().cpu().numpy()) for parameter in parameters)


@pytest.mark.parametrize("method", [OPTIONS.get(name, name) for name in METHODS.names])
def test_every_method_trains(comm, output, method):
    settings = Settings.of({**TRAINED, "method": method, "device": "cuda", "output": output})
    summary = job.run(settings, comm)
    assert summary.finished
    assert summary.is_same_on_all_ranks
    assert summary.device.startswith("cuda")
    assert np.isfinite(summary.curve[-1].loss)


@pytest.mark.parametrize("method", ["synchronous", "eager,policy=full", "ddp"])
def test_training_goes_on_from_the_device_on_the_host(comm, output, method):
    for device, epochs in (("cuda", 1), ("cpu", 2), ("cuda", 3)):
        given = {**TRAINED, "method": method, "device": device, "epochs": epochs, "output": output}
        summary = job.run(Settings.of(given), comm, resume=True)
        assert summary.finished
    losses = [point.loss for point in summary.curve]
    assert losses[-1] < losses[0]
    assert os.listdir(output / "curve") == ["points.json"] or WORLD.rank
