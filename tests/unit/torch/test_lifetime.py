"""How an optimizer ends: with its communicator, after a stall, within its time limit."""

from __future__ import annotations

import threading
import time

import pytest

torch = pytest.importorskip("torch")

from eager import LIMIT, backward, eager, ranks, sgd, values, weights  # noqa: E402

import pycollectives as pc  # noqa: E402
from pycollectives.testing import loopback  # noqa: E402
from pycollectives.torch import DecentralizedOptimizer, EagerOptimizer  # noqa: E402

SHORT = 0.3


@pytest.mark.parametrize("end", ["close", "abort"])
def test_an_optimizer_whose_communicator_has_ended_lets_its_model_go(end):
    def program(comm):
        parameters = weights(2)
        inner = sgd(parameters)
        optimizer = eager(inner, comm)
        backward(parameters, 1.0)
        optimizer.step()
        optimizer.flush()
        getattr(comm, end)()
        assert optimizer.closed
        with pytest.raises(pc.ClosedError, match="EagerOptimizer: its communicator is closed"):
            optimizer.step()
        inner.zero_grad()
        backward(parameters, 1.0)
        inner.step()
        optimizer.close()
        return values(parameters)

    assert ranks(2, program) == [[{-2.0}]] * 2


def test_a_model_is_wrapped_again_after_its_communicator_has_ended():
    parameters = [weights(2) for _ in range(2)]

    def program(comm):
        mine = parameters[comm.rank]
        optimizer = eager(sgd(mine), comm)
        backward(mine, 1.0)
        optimizer.step()
        optimizer.flush()
        mine[0].grad = None

    ranks(2, program)
    ranks(2, program)
    assert [values(mine) for mine in parameters] == [[{-2.0}]] * 2


@pytest.mark.parametrize("failing", [0, 1])
@pytest.mark.parametrize("end", ["leave", "abort"])
@pytest.mark.parametrize("kind", [EagerOptimizer, DecentralizedOptimizer])
def test_a_collective_that_cannot_be_left_keeps_nothing_else_open(kind, end, failing):
    class Error(Exception):
        pass

    def fails():
        raise Error

    (comm,) = loopback(1)
    parameters = weights(2, 3)
    options = {"bucket_bytes": 1} if kind is EagerOptimizer else {"method": "d-psgd"}
    optimizer = kind(sgd(parameters), comm, **options)
    optimizer._owns_comm = True
    collectives = optimizer._collectives()
    setattr(collectives[failing], end, fails)
    with pytest.raises(Error):
        getattr(optimizer, end)()
    assert collectives[1 - failing].closed
    assert comm.closed
    assert optimizer.closed
    for _ in range(2):
        backward(parameters, 1.0)
    assert [set(parameter.grad.tolist()) for parameter in parameters] == [{2.0}] * 2
    getattr(optimizer, end)()


def stalls(call, limit=SHORT):
    """Whether a call raises StallError in about its limit."""
    start = time.monotonic()
    with pytest.raises(pc.StallError):
        call()
    return time.monotonic() - start < limit + 5.0


@pytest.mark.parametrize("kind", [EagerOptimizer, DecentralizedOptimizer])
def test_the_time_limit_holds_for_making_one(kind):
    over = threading.Event()

    def program(comm):
        if comm.rank == 0:
            told = stalls(lambda: kind(sgd(weights(2)), comm, timeout=SHORT))
            over.set()
        else:
            told = over.wait(LIMIT)
        comm.abort()
        return told

    assert ranks(2, program) == [True, True]


@pytest.mark.parametrize("call", ["average_buffers", "add_param_group", "add_unfrozen", "average"])
def test_the_time_limit_holds_for_calls_that_compare(call):
    """The other rank flushes, and comes to nothing after that."""
    over = threading.Event()

    def program(comm):
        model = torch.nn.BatchNorm1d(2)
        optimizer = EagerOptimizer(sgd(model.parameters()), comm, pc.Full(), model=model, timeout=LIMIT)
        calls = {
            "average_buffers": optimizer.average_buffers,
            "add_param_group": lambda: optimizer.add_param_group({"params": weights(2, dtype=torch.float32)}),
            "add_unfrozen": optimizer.add_unfrozen,
            "average": lambda: optimizer.average(1.0),
        }
        if comm.rank == 0:
            optimizer._timeout = 1.0
            told = stalls(calls[call], 1.0)
            over.set()
        else:
            optimizer.flush()
            told = over.wait(LIMIT)
        optimizer.abort()
        comm.abort()
        return told

    assert ranks(2, program) == [True, True]


@pytest.mark.parametrize("call", ["flush", "synchronize_parameters", "average", "average_buffers", "finish"])
def test_a_call_is_given_a_time_limit_of_its_own(call):
    """The other rank flushes, but for a flush, and comes to nothing after that."""
    over = threading.Event()

    def program(comm):
        model = torch.nn.BatchNorm1d(2)
        optimizer = EagerOptimizer(sgd(model.parameters()), comm, pc.Full(), model=model, timeout=LIMIT)
        if comm.rank == 0:
            arguments = (1.0,) if call == "average" else ()
            told = stalls(lambda: getattr(optimizer, call)(*arguments, timeout=1.0), 1.0)
            over.set()
        else:
            if call != "flush":
                optimizer.flush()
            told = over.wait(LIMIT)
        optimizer.abort()
        comm.abort()
        return told

    assert ranks(2, program) == [True, True]


@pytest.mark.parametrize("again", ["step", "flush"])
@pytest.mark.parametrize("closure", [False, True])
def test_a_step_that_stalled_in_its_synchronization_goes_on(again, closure):
    """It is the same step: gradients are used once, and parameters are averaged as often as on the other rank."""

    def program(comm):
        parameters = weights(2)
        losses = iter(range(10))

        def evaluate():
            optimizer.zero_grad()
            backward(parameters, float(comm.rank))
            return next(losses)

        def step():
            if closure:
                return optimizer.step(evaluate)
            evaluate()
            return optimizer.step()

        with eager(sgd(parameters), comm, pc.Solo(), sync_every=2, missed="latest") as optimizer:
            step()
            if comm.rank == 0:
                optimizer._timeout = SHORT
                with pytest.raises(pc.StallError):
                    step()
                optimizer._timeout = LIMIT
            comm.is_same_on_all_ranks(b"rank 0 has stalled")
            if comm.rank == 1:
                step()
            elif again == "flush":
                optimizer.flush()
            else:
                assert optimizer.step(evaluate if closure else None) == (1 if closure else None)
            same = comm.is_same_on_all_ranks(parameters[0].detach().numpy())
            assert optimizer._steps == 2
            step()
            return same, next(losses)

    assert ranks(2, program) == [(True, 3)] * 2


def test_uneven_steps_with_sync_every_are_an_error_of_all():
    def program(comm):
        parameters = weights(1)
        optimizer = eager(sgd(parameters), comm, pc.Full(), sync_every=2)
        try:
            for _ in range(4 - comm.rank):
                optimizer.zero_grad()
                backward(parameters, 1.0)
                optimizer.step()
            optimizer.average(5.0)
        finally:
            optimizer.abort()

    errors = ranks(2, program, return_exceptions=True)
    for error in errors:
        assert isinstance(error, pc.MismatchError)
        assert "average on rank 1" in str(error)
        assert "with sync_every, all ranks must take the same number of steps" in str(error)


def test_a_parameter_without_memory_for_each_element_is_refused_everywhere():
    def program(comm):
        wide = torch.nn.Parameter(torch.zeros(4, 1).expand(4, 5) if comm.rank == 1 else torch.zeros(4, 5))
        if comm.rank == 1:
            with pytest.raises(
                TypeError, match=r"0 of group 0: expected separate memory for each element, got strides \(1, 0\)"
            ):
                eager(sgd([wide]), comm)
        else:
            with pytest.raises(pc.MismatchError, match="refused on rank 1: TypeError: parameter 0 of group 0: "):
                eager(sgd([wide]), comm)

    ranks(2, program)


def test_abort_is_the_way_out_of_a_step_that_cannot_go_on():
    """Gradients were clipped after backward had contributed them: nothing but to give the optimizer up."""

    def program(comm):
        parameters = weights(2)
        inner = sgd(parameters)
        optimizer = eager(inner, comm, name="first")
        backward(parameters, 1.0)
        parameters[0].grad.data.mul_(0.5)
        with pytest.raises(RuntimeError, match=r"This step cannot continue: call abort\(\) on all ranks"):
            optimizer.step()
        inner.zero_grad()
        for call in (optimizer.flush, optimizer.finish, optimizer.close):
            with pytest.raises(RuntimeError, match=r"are in flight: call step\(\) first, or abort\(\)"):
                call()
        optimizer.abort()
        assert optimizer.closed
        assert optimizer.abort() == 0
        with eager(inner, comm, name="second") as another:
            backward(parameters, 1.0)
            another.step()
        return values(parameters)

    assert ranks(2, program) == [[{-1.0}]] * 2
