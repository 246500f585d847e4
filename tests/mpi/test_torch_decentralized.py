"""Optimizers for PyTorch whose parameters are averaged with neighbors, over MPI."""

from __future__ import annotations

import copy
import io
import time
import warnings

import numpy as np
import pytest
from mpi4py import MPI
from oracle import LIMIT

torch = pytest.importorskip("torch")

import pycollectives as pc  # noqa: E402
from pycollectives.torch import DecentralizedOptimizer  # noqa: E402

pytestmark = pytest.mark.one_communicator(timeout=LIMIT)

WORLD = MPI.COMM_WORLD
IN_THE_BACKGROUND = ["ad-psgd", "a2cid2"]
STEPWISE = ["d-psgd", "sgp", "hop", "parameter-server"]
EXACT = [*IN_THE_BACKGROUND, *STEPWISE]  # if ranks make equally many steps
METHODS = [*EXACT, "p-reduce"]  # a group may have the final model of a rank that has left: it is not averaged itself
VARIANTS = [
    ("ad-psgd", {"topology": "ring", "pace": "per_step", "seed": 3}),
    ("a2cid2", {"topology": "ring"}),
    ("d-psgd", {"topology": "complete", "weights": "uniform"}),
    ("sgp", {"topology": "exponential", "overlap": 1}),
    ("p-reduce", {"groups": "random:2"}),
    ("parameter-server", {"sync": "asp", "servers": 1}),
]
ALL = [*((method, {}) for method in METHODS), *VARIANTS]
OF_ROUNDS = ("hop", "p-reduce", "parameter-server")
KEEP_THE_SUM = [each for each in ALL if each[0] not in OF_ROUNDS]  # of ranks that make different numbers of steps

torch.set_num_threads(1)


def decentralized(optimizer, comm, method, **options):
    return DecentralizedOptimizer(optimizer, comm, method, timeout=LIMIT, **options)


def largest(number):
    return WORLD.allreduce(number, MPI.MAX)


def is_same_on_all_ranks(comm, parameters):
    data = b"".join(each.detach().reshape(-1).view(torch.uint8).numpy().tobytes() for each in parameters)
    return comm.is_same_on_all_ranks(data)


# --- Learning

SOLUTION = torch.tensor([[1.0, -2.0, 0.5, 1.5, -1.0, 0.25, 2.0, -0.5]])
OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.2),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.8),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.1, betas=(0.8, 0.9), weight_decay=1e-6),
}


def error_of(weight):
    return (weight - SOLUTION).abs().max().item()


def take_steps(optimizer, weight, steps):
    """Linear regression on examples that tell each rank some coordinates of the solution only."""
    draw = torch.Generator().manual_seed(WORLD.rank)
    known = (torch.arange(8) % WORLD.size == WORLD.rank).float()
    for _ in range(steps):
        inputs = torch.randn(16, 8, generator=draw) * known
        optimizer.zero_grad()
        (inputs @ (weight - SOLUTION).T).square().mean().backward()
        optimizer.step()


def wait_for_an_average(averaging):
    before, begin = averaging.statistics().exchanges, time.monotonic()
    while WORLD.size > 1 and averaging.statistics().exchanges == before and time.monotonic() < begin + LIMIT:
        time.sleep(1e-3)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("method", METHODS)
def test_linear_regression(comm, method, name):
    """No rank can find the solution alone, nor the mean of ranks that were alone; the rest of it comes by averages.

    In the background these come when the machine lets them: there are as many steps as that takes.
    """
    weight = torch.nn.Parameter(torch.full((1, 8), float(WORLD.rank)))
    with decentralized(OPTIMIZERS[name]([weight]), comm, method) as optimizer:
        take_steps(optimizer, weight, 40 * WORLD.size)
        for _ in range(200):
            if method == "p-reduce":
                optimizer.flush()  # a group may wait for this rank's next step
            if largest(error_of(weight)) < 0.02:
                break
            optimizer.param_groups[0]["lr"] = max(0.9 * optimizer.param_groups[0]["lr"], 0.02)  # Adam's steps are long
            take_steps(optimizer, weight, 10)
            if method in IN_THE_BACKGROUND:
                wait_for_an_average(optimizer.averaging)
        assert largest(error_of(weight)) < 0.02
        optimizer.finish()
    assert error_of(weight) < 0.1  # with momentum between averages the mean is not that of what is read
    assert is_same_on_all_ranks(comm, [weight])


# --- What is exact


def push(optimizer, parameters, gradient, steps):
    """Steps with the same gradient for every element."""
    for _ in range(steps):
        optimizer.zero_grad()
        sum(each.sum() * gradient for each in parameters if each.requires_grad).backward()
        optimizer.step()


def parameters_of(*dtypes):
    return [torch.nn.Parameter(torch.full((3 + place, 2), 8.0, dtype=each)) for place, each in enumerate(dtypes)]


def steps_of(rank):
    return 3 + 2 * (rank % 3)


PUSHED = -sum(steps_of(rank) * (rank + 1) for rank in range(WORLD.size)) / WORLD.size


@pytest.mark.parametrize(("method", "options"), KEEP_THE_SUM)
@pytest.mark.parametrize("before_the_end", ["flush", "average", "synchronize_parameters", None])
def test_each_update_counts_once(comm, method, options, before_the_end):
    """However many steps a rank makes, and whatever comes in between, the mean over ranks is that of all updates."""
    parameters = parameters_of(torch.float64, torch.float64)
    with decentralized(torch.optim.SGD(parameters, lr=1.0), comm, method, **options) as optimizer:
        push(optimizer, parameters, WORLD.rank + 1.0, steps_of(WORLD.rank))
        if before_the_end == "average":
            assert optimizer.average(float(WORLD.rank)) == (WORLD.size - 1) / 2
        elif before_the_end is not None:
            getattr(optimizer, before_the_end)()
        if before_the_end == "synchronize_parameters":
            assert is_same_on_all_ranks(comm, parameters)
            np.testing.assert_allclose(parameters[0].detach().numpy(), 8 + PUSHED)
        push(optimizer, parameters, WORLD.rank + 1.0, steps_of(WORLD.rank))
        optimizer.finish()
        assert optimizer.closed
    assert is_same_on_all_ranks(comm, parameters)
    for each in parameters:
        np.testing.assert_allclose(each.detach().numpy(), 8 + 2 * PUSHED, rtol=1e-12)


@pytest.mark.parametrize("method", EXACT)
def test_several_dtypes_and_frozen_parameters(comm, method):
    """Updates are multiples of bfloat16's step between 8 and 16, and averages in between are not: they are kept."""
    parameters = parameters_of(torch.bfloat16, torch.float32, torch.float16, torch.float64, torch.float32)
    parameters[-1].requires_grad_(False)
    with decentralized(torch.optim.SGD(parameters, lr=1 / 16), comm, method) as optimizer:
        push(optimizer, parameters, -(WORLD.rank + 1.0), 8)
        optimizer.finish()
    assert is_same_on_all_ranks(comm, parameters)
    for each in parameters[:-1]:
        np.testing.assert_allclose(each.detach().double().numpy(), 8 + (WORLD.size + 1) / 4, rtol=5e-3)
    assert torch.equal(parameters[-1], torch.full((7, 2), 8.0))


@pytest.mark.parametrize("method", EXACT)
def test_what_the_program_changes_itself_counts_as_an_update(comm, method):
    parameters = parameters_of(torch.float64)
    with decentralized(torch.optim.SGD(parameters, lr=1.0), comm, method) as optimizer:
        push(optimizer, parameters, 1.0, 2)
        with torch.no_grad():
            parameters[0] += WORLD.rank + 1
        push(optimizer, parameters, 1.0, 2)
        with torch.no_grad():
            parameters[0] += WORLD.rank + 1
        optimizer.finish()
    np.testing.assert_allclose(parameters[0].detach().numpy(), 4 + (WORLD.size + 1), rtol=1e-12)


@pytest.mark.parametrize("method", EXACT)
def test_a_step_with_a_closure(comm, method):
    parameters = parameters_of(torch.float64)
    optimizer = decentralized(torch.optim.SGD(parameters, lr=1.0), comm, method)
    losses = []

    def closure():
        optimizer.zero_grad()
        loss = parameters[0].sum() * (WORLD.rank + 1.0)
        loss.backward()
        losses.append(loss.item())
        return loss

    with optimizer:
        returned = [optimizer.step(closure).item() for _ in range(3)]
        optimizer.finish()
    assert returned == losses
    np.testing.assert_allclose(parameters[0].detach().numpy(), 8 - 3 * (WORLD.size + 1) / 2, rtol=1e-12)


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("method", STEPWISE)
def test_a_step_that_ran_into_its_limit_goes_on_where_it_was(comm, method):
    """Rank 0 is a step ahead, and its limit short: the others wait for it to have failed. No update counts twice."""
    parameters = parameters_of(torch.float64)
    inner = torch.optim.SGD(parameters, lr=1.0)
    updates = []
    inner.register_step_post_hook(lambda *_: updates.append(1))
    with decentralized(inner, comm, method) as optimizer:
        push(optimizer, parameters, 1.0, 1)
        if WORLD.rank == 0:
            optimizer._timeout = 0.05
            with pytest.raises(pc.StallError):
                push(optimizer, parameters, 1.0, 2)
            optimizer._timeout = LIMIT
            if method == "sgp":  # it has its update already
                with pytest.raises(RuntimeError, match=r"flush: a step of .* ended with an error: call step.. again"):
                    optimizer.flush()
        WORLD.Barrier()
        if WORLD.rank == 0:
            optimizer.step()
        else:
            push(optimizer, parameters, 1.0, 1)
        push(optimizer, parameters, 1.0, 1)
        optimizer.finish()
    mean = 8 - WORLD.allreduce(len(updates)) / WORLD.size
    np.testing.assert_allclose(parameters[0].detach().numpy(), mean, rtol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_finish_that_ran_into_its_limit_goes_on_when_it_is_called_again(comm, method):
    """The last rank comes after the others' limit; no update counts twice, and models are equal in the end."""
    parameters = parameters_of(torch.float64)
    options = {"groups": f"static:{comm.size}"} if method == "p-reduce" else {}  # others may wait for a third step
    optimizer = decentralized(torch.optim.SGD(parameters, lr=1.0), comm, method, **options)
    push(optimizer, parameters, 1.0, 2)
    stalled = 0
    if comm.rank == comm.size - 1:
        WORLD.Barrier()  # all others have run into their limit
    else:
        optimizer._timeout = 0.2
    while stalled < 100:
        try:
            optimizer.finish()
            break
        except pc.StallError:
            stalled += 1
            if stalled == 1:
                WORLD.Barrier()
    assert (stalled > 0) == (comm.rank < comm.size - 1)
    np.testing.assert_allclose(parameters[0].detach().numpy(), 6.0, rtol=1e-12)


@pytest.mark.parametrize("method", IN_THE_BACKGROUND)
def test_an_update_that_was_handed_over_is_not_so_again(comm, method, monkeypatch):
    """The neighbor's death is told by `read` here: the step is called again."""
    parameters = parameters_of(torch.float64)
    with decentralized(torch.optim.SGD(parameters, lr=1.0), comm, method) as optimizer:
        with monkeypatch.context() as patch:
            patch.setattr(optimizer.averaging, "read", lambda out: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                push(optimizer, parameters, 1.0, 1)
        optimizer.step()
        push(optimizer, parameters, 1.0, 1)
        optimizer.finish()
    np.testing.assert_allclose(parameters[0].detach().numpy(), 6.0, rtol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_a_closure_that_fails_has_changed_nothing(comm, method):
    parameters = parameters_of(torch.float64)
    with decentralized(torch.optim.SGD(parameters, lr=1.0), comm, method) as optimizer:
        push(optimizer, parameters, 1.0, 1)
        if WORLD.rank == 0:
            with pytest.raises(ZeroDivisionError):
                optimizer.step(lambda: 1 / 0)
        push(optimizer, parameters, 1.0, 1)
        optimizer.finish()
    np.testing.assert_allclose(parameters[0].detach().numpy(), 6.0, rtol=1e-12)


# --- State


def model_with_statistics(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1))


def train(model, optimizer, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()


def bits_of(state):
    file = io.BytesIO()
    torch.save(state, file)
    return torch.load(io.BytesIO(file.getvalue()))


@pytest.mark.parametrize("method", METHODS)
def test_state_round_trip(comm, method):
    """What is saved after `synchronize_parameters` is what a new one begins with; moments stay each rank's own."""
    model = model_with_statistics(seed=WORLD.rank)
    with decentralized(torch.optim.AdamW(model.parameters(), lr=0.01), comm, method, model=model) as optimizer:
        train(model, optimizer, 3 + WORLD.rank)
        optimizer.synchronize_parameters()
        optimizer.average_buffers()
        saved = bits_of({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    again = model_with_statistics(seed=99)
    inner = torch.optim.AdamW(again.parameters(), lr=0.01)
    with decentralized(inner, comm, method, model=again) as optimizer:
        again.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        assert {int(each["step"]) for each in inner.state.values()} == {3 + WORLD.rank}
        optimizer.synchronize_parameters()
        for name, tensor in again.state_dict().items():
            if "running" not in name:
                torch.testing.assert_close(tensor, saved["model"][name])
        train(again, optimizer, 2)
        optimizer.finish()
    assert {int(each["step"]) for each in inner.state.values()} == {5 + WORLD.rank}
    assert is_same_on_all_ranks(comm, [*again.parameters(), *again.buffers()])


def test_ranks_begin_with_what_rank_0_has(comm):
    model = model_with_statistics(seed=WORLD.rank)
    with decentralized(torch.optim.SGD(model.parameters(), lr=0.1 + WORLD.rank), comm, "sgp", model=model) as optimizer:
        assert is_same_on_all_ranks(comm, list(model.parameters()))
        assert optimizer.param_groups[0]["lr"] == 0.1
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        train(model, optimizer, 1)
        schedule.step()
        assert optimizer.optimizer.param_groups[0]["lr"] == 0.05


def test_what_a_method_stands_on_tells_what_it_did(comm):
    parameters = parameters_of(torch.float64)
    with decentralized(torch.optim.SGD(parameters, lr=1.0), comm, "ad-psgd", topology="complete") as optimizer:
        push(optimizer, parameters, 1.0, 3)
        assert optimizer.averaging.statistics().applied == 3
        assert "'ad-psgd', <Topology complete" in repr(optimizer)
    with decentralized(torch.optim.SGD(parameters, lr=1.0), comm, "sgp", overlap=1) as optimizer:
        assert optimizer.averaging.overlap == 1


# --- Misuse


def refused(comm, error, text, *arguments, **options):
    with pytest.raises(error, match=text):
        decentralized(torch.optim.SGD(parameters_of(torch.float32), lr=1.0), comm, *arguments, **options)


def test_arguments_that_cannot_be(comm):
    refused(comm, ValueError, "method: expected 'ad-psgd' or .* or 'parameter-server', got 'odd'", "odd")
    text = "overlap: unknown option of method 'd-psgd'; expected weights"
    refused(comm, TypeError, text, "d-psgd", overlap=1)
    refused(comm, ValueError, "topology: expected .*'ring'.*, got 'odd'", "sgp", topology="odd")
    for method in ("p-reduce", "parameter-server"):
        refused(
            comm,
            TypeError,
            f"topology: expected None, since method '{method}' has no topology",
            method,
            topology="ring",
        )
    refused(
        comm,
        ValueError,
        "sync: expected a synchronization in which ranks push gradients",
        "parameter-server",
        sync="eamsgd:2:0.5",
    )
    refused(comm, TypeError, "topology: .* does not vary", "ad-psgd", topology="one-peer-exponential")
    refused(comm, ValueError, "overlap: expected .*, got 2", "sgp", overlap=2)
    text = f"as many ranks as the communicator, {WORLD.size}, got <Topology ring of {WORLD.size + 1}"
    refused(comm, ValueError, text, "d-psgd", topology=pc.topology.ring(WORLD.size + 1))
    if WORLD.size > 1:
        topology = "ring" if WORLD.rank else "complete"
        refused(comm, pc.MismatchError, "topology: .* on rank 0, ", "d-psgd", topology=topology)
        refused(comm, pc.MismatchError, "method: ad-psgd on rank 0", "a2cid2" if WORLD.rank else "ad-psgd")


def test_optimizers_that_cannot_be_wrapped(comm):
    parameters = parameters_of(torch.float32)
    with pytest.raises(TypeError, match="that evaluates the model once per step, got LBFGS"):
        decentralized(torch.optim.LBFGS(parameters), comm, "ad-psgd")
    inner = torch.optim.SGD(parameters, lr=1.0)
    with decentralized(inner, comm, "ad-psgd") as optimizer:
        with pytest.raises(ValueError, match="got SGD wrapped by 'DecentralizedOptimizer'"):
            decentralized(inner, comm, "d-psgd")
        with pytest.raises(TypeError, match="expected an unwrapped optimizer"):
            decentralized(optimizer, comm, "d-psgd")
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            copy.copy(optimizer)


@pytest.mark.parametrize("method", METHODS)
def test_parameters_stay_the_same_ones(comm, method):
    parameters = parameters_of(torch.float32, torch.float32)
    parameters[1].requires_grad_(False)
    with decentralized(torch.optim.SGD(parameters, lr=1.0), comm, method) as optimizer:
        with pytest.raises(
            RuntimeError, match="add_param_group: DecentralizedOptimizer exchanges only the parameters that"
        ):
            optimizer.add_param_group({"params": parameters_of(torch.float32)})
        push(optimizer, parameters, 1.0, 1)
        parameters[1].requires_grad_(True)
        with pytest.raises(RuntimeError, match="parameter 1 of group 0 requires gradients, but did not"):
            push(optimizer, parameters, 1.0, 1)
        parameters[1].requires_grad_(False)
        push(optimizer, parameters, 1.0, 1)
        optimizer.finish()
    with pytest.raises(pc.ClosedError, match="DecentralizedOptimizer is closed"):
        optimizer.step()
    np.testing.assert_allclose(parameters[0].detach().numpy(), 6.0, rtol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_the_others_go_on_without_a_rank_that_leaves_by_an_exception(method):
    """In a communicator of its own: the last rank is missing in it afterwards."""
    parameters = parameters_of(torch.float64)
    last = WORLD.size > 1 and WORLD.rank == WORLD.size - 1
    with pc.Communicator(WORLD, timeout=LIMIT) as comm:
        optimizer = decentralized(torch.optim.SGD(parameters, lr=1.0), comm, method)
        push(optimizer, parameters, 1.0, 2)
        if last:
            with warnings.catch_warnings(), pytest.raises(KeyError), optimizer:
                warnings.simplefilter("error")  # nothing is lost
                raise KeyError
        else:
            push(optimizer, parameters, 1.0, 6)
            assert optimizer.abort() == 0
        assert optimizer.closed
    np.testing.assert_array_less(parameters[0].detach().numpy(), 8.0)
