"""The optimizer for PyTorch over MPI. What needs no messages is in tests/unit/test_interop_*.py."""

from __future__ import annotations

import copy
import random
import time

import pytest
from mpi4py import MPI
from oracle import LIMIT

torch = pytest.importorskip("torch")

import pycollectives as pc  # noqa: E402
from pycollectives.torch import EagerOptimizer  # noqa: E402

pytestmark = pytest.mark.one_communicator(timeout=LIMIT)

WORLD = MPI.COMM_WORLD
POLICIES = [pc.Solo(), pc.Majority(seed=7), pc.Quorum(1 + WORLD.size // 2, grace=1e-3), pc.Full()]

torch.set_num_threads(1)


def eager(optimizer, comm, policy, **options):
    return EagerOptimizer(optimizer, comm, policy, timeout=LIMIT, **options)


def model_of_layers():
    torch.manual_seed(WORLD.rank)  # replicas begin with rank 0's parameters all the same
    return torch.nn.Sequential(torch.nn.Linear(5, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3)).double()


def is_same_on_all_ranks(comm, model):
    return all(comm.is_same_on_all_ranks(tensor.detach().numpy()) for tensor in model.parameters())


OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
}


@pytest.mark.parametrize("bucket_bytes", [1, 1000, 2**20])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_full_is_training_on_the_whole_batch(comm, name, bucket_bytes):
    draw = torch.Generator().manual_seed(3)
    inputs = torch.randn(6, 4 * WORLD.size, 5, generator=draw, dtype=torch.float64)
    targets = torch.randn(6, 4 * WORLD.size, 3, generator=draw, dtype=torch.float64)
    mine = slice(4 * WORLD.rank, 4 * WORLD.rank + 4)
    model, loss = model_of_layers(), torch.nn.MSELoss()
    with eager(OPTIMIZERS[name](model.parameters()), comm, pc.Full(), bucket_bytes=bucket_bytes) as optimizer:
        alone = copy.deepcopy(model)
        reference = OPTIMIZERS[name](alone.parameters())
        schedules = [torch.optim.lr_scheduler.StepLR(each, 2, gamma=0.5) for each in (optimizer, reference)]
        for x, y in zip(inputs, targets, strict=True):
            for each in (optimizer, reference):
                each.zero_grad()
            loss(model(x[mine]), y[mine]).backward()
            loss(alone(x), y).backward()
            for each in (optimizer, reference, *schedules):
                each.step()
            assert optimizer.mean_active == WORLD.size
        for ours, theirs in zip(model.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    assert is_same_on_all_ranks(comm, model)


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
@pytest.mark.parametrize("late", [0, -1])
def test_with_missed_sum_no_gradient_of_a_straggler_is_lost(comm, policy, late):
    """Whole numbers, so that the sums are exact; the straggler makes fewer steps, and uses some layers only."""
    draw = random.Random(WORLD.rank)
    straggles = WORLD.rank == late % WORLD.size
    parameters = [torch.nn.Parameter(torch.zeros(n, dtype=torch.float64)) for n in (1, 70_000, 3)]
    total = torch.zeros(3, dtype=torch.float64)
    optimizer = eager(torch.optim.SGD(parameters, lr=1.0), comm, policy, missed="sum", bucket_bytes=8)
    with optimizer:
        for step in range(6 if straggles else 12):
            if straggles:
                time.sleep(4e-3)
            gradients = torch.tensor([draw.randint(-9, 9) * float(WORLD.size) for _ in range(3)], dtype=torch.float64)
            used = [0, 1, 2] if not straggles else [step % 3]
            optimizer.zero_grad()
            sum(parameters[place].sum() * gradients[place] for place in used).backward()
            optimizer.step()
            total[used] += gradients[used]
            if step == 3:
                optimizer.flush()
    expected = -WORLD.allreduce(total.numpy().copy()) / WORLD.size
    for parameter, value in zip(parameters, expected, strict=True):
        assert (parameter == value).all(), (parameter, value)


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_eager_sgd_learns_and_replicas_meet(comm, policy):
    """Algorithm 2 with models synchronized now and then: late ranks' results are overwritten."""
    draw = torch.Generator().manual_seed(WORLD.rank)
    truth = torch.linspace(-1, 1, 15, dtype=torch.float64).reshape(5, 3)
    model, loss = torch.nn.Linear(5, 3, bias=False).double(), torch.nn.MSELoss()
    inner = torch.optim.SGD(model.parameters(), lr=0.2)
    with eager(inner, comm, policy, divide_by="contributors", sync_every=20) as optimizer:
        for step in range(60):
            x = torch.randn(8, 5, generator=draw, dtype=torch.float64)
            optimizer.zero_grad()
            error = loss(model(x), x @ truth)
            error.backward()
            if step % WORLD.size == WORLD.rank:
                time.sleep(2e-3)
            optimizer.step()
        assert is_same_on_all_ranks(comm, model)
        assert error < 0.05
        assert optimizer.rounds


def test_16_bit_layers_that_are_unfrozen_later(comm):
    """The sum over two ranks would exceed float16."""
    parameters = [torch.nn.Parameter(torch.zeros(n, dtype=torch.float16)) for n in (3, 70_000)]
    parameters[1].requires_grad_(False)
    with eager(torch.optim.SGD(parameters, lr=2.0**-10), comm, pc.Full()) as optimizer:
        for _ in range(2):
            optimizer.zero_grad()
            sum(parameter.mul(40960.0).sum() for parameter in parameters if parameter.requires_grad).backward()
            optimizer.step()
            parameters[1].requires_grad_(True)
            optimizer.add_unfrozen()
    assert [set(parameter.tolist()) for parameter in parameters] == [{-80.0}, {-40.0}]


def test_an_mpi4py_communicator_is_enough():
    layer = torch.nn.Linear(2, 1)
    with EagerOptimizer(torch.optim.SGD(layer.parameters(), lr=1.0), WORLD, pc.Full(), timeout=LIMIT) as optimizer:
        layer(torch.ones(2)).sum().backward()
        optimizer.step()
    assert optimizer.closed
    assert optimizer._comm.closed


@pytest.mark.mpi(min_size=2)
def test_models_that_differ_are_told_to_all(comm):
    wide = 4 if WORLD.rank == WORLD.size - 1 else 3
    with pytest.raises(pc.MismatchError, match=r"\(4, 2\).*\(3, 2\)|\(3, 2\).*\(4, 2\)"):
        eager(torch.optim.SGD(torch.nn.Linear(2, wide).parameters(), lr=1.0), comm, pc.Solo())
    test_full_is_training_on_the_whole_batch(comm, "sgd", 1000)  # the communicator is as usable as before


def test_a_rank_that_fails_leaves_the_others_alone(comm):
    """It leaves the block by an exception; nobody waits for it in a round, and the others' flush does not either."""
    parameters = [torch.nn.Parameter(torch.zeros(2)) for _ in range(2)]
    fails = WORLD.rank == WORLD.size - 1 > 0

    def train():
        with eager(torch.optim.SGD(parameters, lr=1.0), comm, pc.Majority(seed=1), bucket_bytes=1) as optimizer:
            for step in range(5):
                if fails and step == 2:
                    raise KeyError
                optimizer.zero_grad()
                sum(parameter.sum() for parameter in parameters).backward()
                optimizer.step()

    if fails:
        with pytest.warns(RuntimeWarning, match="EagerOptimizer ended with KeyError"), pytest.raises(KeyError):
            train()
    else:
        train()
