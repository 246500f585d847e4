"""Activation checkpoints: a gradient that comes in parts is told by name, and is right where it can be."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from eager import eager, ranks, sgd, values, weights  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402


def loss_of(x, weight, *, parts, reentrant):
    """Use a weight so often, in a checkpoint each time, or outside of any; it is no argument, as in a module."""

    def scaled(y):
        return y * weight

    for part in parts:
        x = checkpoint(scaled, x, use_reentrant=reentrant) if part == "inside" else scaled(x)
    return x.sum()


def train(comm, parts, *, reentrant, **options):
    (weight,) = parameters = weights(2)
    with torch.no_grad():
        weight.fill_(1.0)
    with eager(sgd(parameters), comm, **options) as optimizer:
        for _ in range(2):
            optimizer.zero_grad()
            x = torch.ones(2, dtype=torch.float64, requires_grad=True)
            loss_of(x, weight, parts=parts, reentrant=reentrant).backward()
            optimizer.step()
    return values(parameters)


@pytest.mark.parametrize("parts", [["inside", "inside"], ["inside", "outside"], ["outside", "inside"]], ids=str)
def test_a_weight_in_several_parts_of_a_reentrant_checkpoint_is_told_by_name(parts):
    text = "parameter 0 of group 0 gets its gradient in parts, by a reentrant checkpoint.*use_reentrant=False"
    with pytest.warns(RuntimeWarning, match="ended with RuntimeError"), pytest.raises(RuntimeError, match=text):
        ranks(1, lambda comm: train(comm, parts, reentrant=True))


@pytest.mark.parametrize(
    ("parts", "options"),
    [
        (["inside"], {"reentrant": True}),
        (["inside", "inside"], {"reentrant": False}),
        (["inside", "outside"], {"reentrant": True, "overlap": False}),
    ],
    ids=str,
)
def test_checkpoints_that_work(parts, options):
    expected = 1.0
    for _ in range(2):
        expected -= len(parts) * expected ** (len(parts) - 1)
    assert ranks(2, lambda comm: train(comm, parts, **options)) == [[{expected}]] * 2


def test_a_gradient_in_parts_is_right_where_its_bucket_is_not_complete():
    """The last layer of the bucket has its gradient when all parts have come."""

    def program(comm):
        first, shared = parameters = weights(2, 2)
        with torch.no_grad():
            shared.fill_(1.0)
        with eager(sgd(parameters), comm) as optimizer:
            loss_of(first + 1.0, shared, parts=["inside", "inside"], reentrant=True).backward()
            optimizer.step()
        return values(parameters)

    assert ranks(2, program) == [[{-1.0}, {-1.0}]] * 2


def test_a_second_backward_is_not_taken_for_a_checkpoint():
    def program(comm):
        (weight,) = parameters = weights(2)
        optimizer = eager(sgd(parameters), comm)
        for again in (False, True):
            x = torch.ones(2, dtype=torch.float64, requires_grad=True)
            loss = loss_of(x, weight, parts=["outside" if again else "inside"], reentrant=True)
            if not again:
                loss.backward()
                continue
            with pytest.raises(RuntimeError, match="a second time before step"):
                loss.backward()
        optimizer.abort()

    ranks(1, program)
