"""What all ranks get of rank 0 when the optimizer for PyTorch is made, and running statistics, over MPI."""

from __future__ import annotations

import copy
import io

import pytest
from mpi4py import MPI
from oracle import LIMIT

torch = pytest.importorskip("torch")

import pycollectives as pc  # noqa: E402
from pycollectives.torch import EagerOptimizer  # noqa: E402

pytestmark = pytest.mark.one_communicator(timeout=LIMIT)

WORLD = MPI.COMM_WORLD

torch.set_num_threads(1)


def eager(optimizer, comm, **options):
    return EagerOptimizer(optimizer, comm, pc.Full(), timeout=LIMIT, **options)


def model_with_statistics(seed):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    return model.requires_grad_(True)


OPTIMIZERS = {
    "adamw": lambda parameters, **options: torch.optim.AdamW(parameters, **{"lr": 0.01, **options}),
    "amsgrad": lambda parameters, **options: torch.optim.Adam(parameters, **{"lr": 0.01, "amsgrad": True, **options}),
    "momentum": lambda parameters, **options: torch.optim.SGD(parameters, **{"lr": 0.1, "momentum": 0.9, **options}),
    "adagrad": lambda parameters, **options: torch.optim.Adagrad(parameters, **{"lr": 0.1, **options}),
}


def bits_of(model, optimizer):
    """Return all that a checkpoint holds as bytes: tensors with their types, and the rest as text."""
    state = optimizer.state_dict()
    words = [repr(state["param_groups"])]
    tensors = list(model.state_dict().values())
    for number in sorted(state["state"]):
        for key, value in sorted(state["state"][number].items()):
            words.append(f"{number} {key} {getattr(value, 'dtype', value)}")
            if isinstance(value, torch.Tensor):
                tensors.append(value)
    data = [tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() for tensor in tensors]
    return b"".join(["\n".join(words).encode(), *data])


def is_same_on_all_ranks(comm, model, optimizer):
    return comm.is_same_on_all_ranks(bits_of(model, optimizer))


def steps(model, optimizer, numbers, *, of_rank):
    for number in numbers:
        draw = torch.Generator().manual_seed(100 * number + of_rank)
        optimizer.zero_grad()
        model(torch.randn(8, 3, generator=draw)).square().mean().backward()
        optimizer.step()


def checkpoint(name):
    """Return the file of a training of its own, the same on all ranks."""
    model = model_with_statistics(seed=99)
    inner = OPTIMIZERS[name](model.parameters(), lr=0.03)
    steps(model, inner, range(3), of_rank=7)
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": inner.state_dict()}, file)
    return file.getvalue()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_checkpoint_that_rank_0_loads_is_that_of_all(comm, name):
    """Frozen layers and running statistics are not the optimizer's: they come with the model."""
    file = checkpoint(name)
    model = model_with_statistics(seed=WORLD.rank)
    expected = model_with_statistics(seed=98)
    for each in (model, expected):
        each[0].requires_grad_(False)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    inner = OPTIMIZERS[name](trained)
    reference = OPTIMIZERS[name]([parameter for parameter in expected.parameters() if parameter.requires_grad])
    state = torch.load(io.BytesIO(file))
    state["optimizer"]["param_groups"][0]["params"] = [0, 1, 2, 3]
    state["optimizer"]["state"] = {n - 2: value for n, value in state["optimizer"]["state"].items() if n >= 2}
    for each, optimizer in ((expected, reference), *([(model, inner)] if WORLD.rank == 0 else [])):
        each.load_state_dict(state["model"])
        optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))
    with eager(inner, comm, model=model) as optimizer:
        assert bits_of(model, optimizer) == bits_of(expected, reference)
        assert is_same_on_all_ranks(comm, model, optimizer)
        steps(model, optimizer, range(2), of_rank=WORLD.rank)
        optimizer.finish()
    assert is_same_on_all_ranks(comm, model, inner)


def test_ranks_with_different_hyperparameters_get_those_of_rank_0(comm):
    model = model_with_statistics(seed=0)
    rate = torch.tensor(0.5 + WORLD.rank)  # the program holds on to it
    groups = [
        {"params": model[0].parameters(), "lr": rate},
        {"params": model[2].parameters(), "betas": (0.5, 0.1 * (1 + WORLD.rank))},
    ]
    inner = torch.optim.AdamW(groups, lr=0.01 * (1 + WORLD.rank), weight_decay=0.1 * WORLD.rank)
    if WORLD.rank != 0:
        inner.param_groups[1]["of this rank alone"] = 1
    with eager(inner, comm, model=model) as optimizer:
        assert optimizer.param_groups[0]["lr"] is rate
        assert rate == 0.5
        first, second = optimizer.param_groups
        assert (second["lr"], second["betas"], second["weight_decay"]) == (0.01, (0.5, 0.1), 0.0)
        assert "of this rank alone" not in second
        assert optimizer.defaults["lr"] == 0.01
        assert all(one is mine for one, mine in zip(first["params"], model[0].parameters(), strict=True))
        added = torch.nn.Parameter(torch.full((2,), float(WORLD.rank)))
        optimizer.add_param_group({"params": [added], "lr": 0.25 + WORLD.rank})
        assert optimizer.param_groups[2]["lr"] == 0.25
        assert is_same_on_all_ranks(comm, model, optimizer)


def test_schedulers_continue_where_those_of_rank_0_are(comm):
    def made(steps):
        model = torch.nn.Linear(2, 1)
        inner = torch.optim.SGD(model.parameters(), lr=1.0)
        first = torch.optim.lr_scheduler.StepLR(inner, 3)
        second = torch.optim.lr_scheduler.SequentialLR(
            inner, [torch.optim.lr_scheduler.ExponentialLR(inner, 0.5) for _ in range(2)], [2]
        )
        for _ in range(steps):
            inner.step()
            second.step()
            first.step()
        return inner, (first, second)

    expected, of_rank_0 = made(4)
    inner, schedulers = made(4 if WORLD.rank == 0 else WORLD.rank % 3)
    with eager(inner, comm, schedulers=schedulers) as optimizer:
        for _ in range(3):
            assert optimizer.param_groups[0]["lr"] == expected.param_groups[0]["lr"]
            for each in (*of_rank_0, *schedulers):
                each.step()
        added = torch.nn.Parameter(torch.zeros(2))
        if WORLD.rank == 0:
            schedulers[0].step()
        before = schedulers[0].state_dict()
        optimizer.add_param_group({"params": [added]})  # its state is sent, and that of schedulers stays
        assert schedulers[0].state_dict() == before
    inner, schedulers = made(WORLD.rank)
    with eager(inner, comm, schedulers=schedulers, broadcast_state=False):
        assert schedulers[0].last_epoch == WORLD.rank


def test_nothing_to_broadcast(comm):
    """No state, no model; and a model without buffers, whose parameters are all the optimizer's."""
    for options in ({}, {"model": torch.nn.Linear(2, 1)}):
        model = options.get("model", torch.nn.Linear(2, 1))
        with eager(torch.optim.SGD(model.parameters(), lr=1.0), comm, **options) as optimizer:
            assert optimizer.state_dict()["state"] == {}
            assert is_same_on_all_ranks(comm, model, optimizer)
            optimizer.average_buffers(model)


@pytest.mark.parametrize("has_state", [0, -1])
def test_state_that_one_rank_has(comm, has_state):
    """Rank 0 gives what it has, and that it has none."""
    model = model_with_statistics(seed=1)
    inner = torch.optim.Adam(model.parameters())
    if WORLD.rank == has_state % WORLD.size:
        steps(model, inner, range(2), of_rank=0)
    count = len(inner.state) if WORLD.rank == 0 else None
    with eager(inner, comm, model=model) as optimizer:
        assert len(optimizer.state) == WORLD.bcast(count)
        assert is_same_on_all_ranks(comm, model, optimizer)


def test_each_rank_may_keep_its_own(comm):
    model = model_with_statistics(seed=WORLD.rank)
    inner = torch.optim.SGD(model.parameters(), lr=1.0 + WORLD.rank, momentum=0.5)
    steps(model, inner, range(2), of_rank=WORLD.rank)
    before = bits_of(model, inner)
    with eager(inner, comm, model=model, broadcast=False):
        assert bits_of(model, inner) == before
    parameters = [parameter.detach().clone() for parameter in model.parameters()]
    with eager(inner, comm, model=model, broadcast_state=False):
        assert inner.param_groups[0]["lr"] == 1.0 + WORLD.rank
        same = [torch.equal(a, b) for a, b in zip(parameters, model.parameters(), strict=True)]
        assert all(same) == (WORLD.rank == 0)


def test_running_statistics_are_averaged_and_constants_stay(comm):
    model = torch.nn.BatchNorm1d(2)
    constant = torch.tensor([0.1, 1 / 3, float("-inf"), 3e38])
    model.register_buffer("table", constant.clone())
    model.register_buffer("narrow", torch.tensor([0.1, 7.0], dtype=torch.bfloat16), persistent=False)
    with eager(torch.optim.SGD(model.parameters(), lr=0.1), comm) as optimizer:
        with torch.no_grad():
            model.running_mean.fill_(float(WORLD.rank))
            model.num_batches_tracked.fill_(10 + WORLD.rank)
        optimizer.average_buffers(model)
    assert set(model.running_mean.tolist()) == {(WORLD.size - 1) / 2}
    assert model.num_batches_tracked == 10
    assert torch.equal(model.table, constant)
    assert torch.equal(model.narrow, torch.tensor([0.1, 7.0], dtype=torch.bfloat16))


def test_a_training_with_running_statistics_ends_with_the_same_model(comm):
    model = model_with_statistics(seed=WORLD.rank)
    optimizer = eager(torch.optim.SGD(model.parameters(), lr=0.1), comm, model=model)
    steps(model, optimizer, range(3), of_rank=WORLD.rank)
    optimizer.finish()
    assert optimizer.closed
    assert is_same_on_all_ranks(comm, model, optimizer)
