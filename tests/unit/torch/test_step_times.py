"""The times of an optimizer's steps, without its waiting."""

import time

import pytest
from mpi4py import MPI

torch = pytest.importorskip("torch")

import pycollectives as pc  # noqa: E402
from pycollectives.torch import DecentralizedOptimizer, EagerOptimizer  # noqa: E402

WORK_S, WAIT_S = 0.01, 0.2


def slowly(call):
    def called(*arguments, **options):
        time.sleep(WAIT_S)
        return call(*arguments, **options)

    return called


def eager(inner, timer):
    optimizer = EagerOptimizer(inner, MPI.COMM_SELF, step_timer=timer)
    return optimizer, optimizer._gradients, "average"


def before(inner, timer):
    optimizer = DecentralizedOptimizer(inner, MPI.COMM_SELF, "d-psgd", step_timer=timer)
    return optimizer, optimizer._exchange, "before_update"


def after(inner, timer):
    optimizer = DecentralizedOptimizer(inner, MPI.COMM_SELF, "ad-psgd", step_timer=timer)
    return optimizer, optimizer._exchange, "after_update"


def trained(make, monkeypatch, *, steps=4, between=lambda optimizer: None, closure=False):
    timer = pc.StepTimer()
    model = torch.nn.Linear(2, 1)
    optimizer, part, name = make(torch.optim.SGD(model.parameters(), lr=0.1), timer)
    monkeypatch.setattr(part, name, slowly(getattr(part, name)))

    def loss():
        optimizer.zero_grad()
        time.sleep(WORK_S)
        value = model(torch.ones(2)).sum()
        value.backward()
        return value

    with optimizer:
        for _ in range(steps):
            if closure:
                optimizer.step(loss)
            else:
                loss()
                optimizer.step()
            between(optimizer)
    return timer.seconds


@pytest.mark.parametrize("closure", [False, True])
@pytest.mark.parametrize("make", [eager, before, after])
def test_waiting_is_no_work(make, closure, monkeypatch):
    seconds = trained(make, monkeypatch, closure=closure)
    assert len(seconds) == 3, "the first step only begins the clock"
    assert all(WORK_S <= each < WAIT_S for each in seconds)


@pytest.mark.parametrize("call", ["flush", "synchronize_parameters"])
def test_a_flush_between_steps_is_no_work(call, monkeypatch):
    def make(inner, timer):
        optimizer = EagerOptimizer(inner, MPI.COMM_SELF, step_timer=timer)
        return optimizer, optimizer._gradients, "flush"

    seconds = trained(make, monkeypatch, between=lambda optimizer: getattr(optimizer, call)())
    assert all(WORK_S <= each < WAIT_S for each in seconds)


def test_synchronization_in_a_step_is_no_work(monkeypatch):
    def make(inner, timer):
        optimizer = EagerOptimizer(inner, MPI.COMM_SELF, step_timer=timer, sync_every=2)
        return optimizer, optimizer._gradients, "flush"

    seconds = trained(make, monkeypatch)
    assert len(seconds) == 3
    assert all(WORK_S <= each < WAIT_S for each in seconds)


def test_other_timers_are_refused():
    inner = torch.optim.SGD(torch.nn.Linear(2, 1).parameters(), lr=0.1)
    with pytest.raises(TypeError, match="step_timer: expected a StepTimer or None, got float"):
        EagerOptimizer(inner, MPI.COMM_SELF, step_timer=0.5)
