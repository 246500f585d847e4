"""Arguments and parameters that are refused, and how every rank learns of it."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from eager import backward, eager, ranks, sgd, weights  # noqa: E402

import pycollectives as pc  # noqa: E402
from pycollectives.torch import EagerOptimizer  # noqa: E402


def on_meta(parameters):
    return sgd([torch.nn.Parameter(torch.zeros(2, device="meta"))])


def of_two_tensors(parameters):
    from torch.testing._internal.two_tensor import TwoTensor

    return sgd([torch.nn.Parameter(TwoTensor(torch.zeros(2), torch.zeros(2)))])


@pytest.mark.parametrize(
    ("make", "options", "text"),
    [
        (lambda p: torch.optim.LBFGS(p), {}, "unwrapped optimizer that evaluates the model once per step, got LBFGS"),
        (lambda p: p, {}, "expected a torch.optim.Optimizer, got list"),
        (lambda p: sgd([torch.nn.Parameter(torch.zeros(2, dtype=torch.complex64))]), {}, "got complex64"),
        (on_meta, {}, "expected memory of the host or of a CUDA device, got device meta"),
        (of_two_tensors, {}, "expected a dense tensor, got TwoTensor of layout torch.strided"),
        (sgd, {"staged": 1}, "staged: expected True, False or None, got 1"),
        (lambda p: sgd([torch.zeros(2)]), {}, "expected a parameter that requires gradients"),
        (sgd, {"divide_by": "ranks"}, "divide_by: expected"),
        (sgd, {"bucket_bytes": 0}, "bucket_bytes: expected at least 1"),
        (sgd, {"bucket_bytes": 1.5}, "bucket_bytes: expected an integer"),
        (sgd, {"sync_every": 0}, "sync_every: expected at least 1"),
        (sgd, {"missed": "all"}, "missed: expected"),
        (sgd, {"policy": 2}, "policy: expected"),
    ],
)
def test_what_is_refused_on_one_rank_is_told_to_all(make, options, text):
    def program(comm):
        if comm.rank == 1:
            with pytest.raises((TypeError, ValueError), match=text):
                EagerOptimizer(make(weights(2)), comm, **options)
        else:
            with pytest.raises(pc.MismatchError, match="refused on rank 1"):
                EagerOptimizer(sgd(weights(2)), comm)
        parameters = weights(2)
        with eager(sgd(parameters), comm) as optimizer:  # the communicator is as usable as before
            backward(parameters, 1.0)
            optimizer.step()

    ranks(2, program)


@pytest.mark.parametrize(
    ("shapes", "options", "text"),
    [
        ([(2, 3), 4], {}, r"\(3, 2\)"),
        ([4, (3, 2)], {}, r"\(3, 2\)"),
        ([(3, 2)], {}, "parameters"),
        ([(3, 2), 4], {"bucket_bytes": 8}, "bucket_bytes"),
        ([(3, 2), 4], {"sync_every": 3}, "sync_every: None on rank"),
        ([(3, 2), 4], {"divide_by": "contributors"}, "divide_by"),
        ([(3, 2), 4], {"policy": pc.Solo()}, "policy"),
        ([(3, 2), 4], {"missed": "latest"}, "missed"),
        ([(3, 2), 4], {"staged": True}, "memory of gradients: host on rank"),
    ],
)
def test_what_differs_between_ranks_is_told_to_all(shapes, options, text):
    def program(comm):
        good = [(3, 2), 4]
        with pytest.raises(pc.MismatchError, match=text):
            EagerOptimizer(
                sgd(weights(*(shapes if comm.rank == 2 else good))), comm, **options if comm.rank == 2 else {}
            )
        return True

    assert ranks(3, program) == [True] * 3


def test_sparse_gradients_are_refused():
    def program(comm):
        layer = torch.nn.Embedding(4, 2, sparse=True)
        optimizer = eager(torch.optim.SGD(layer.parameters(), lr=1.0), comm)
        with pytest.raises(TypeError, match=r"parameter 0 of group 0 is not averaged: .*sparse=False"):
            layer(torch.tensor([1])).sum().backward()
        layer.weight.grad = None
        optimizer.close()

    ranks(1, program)
