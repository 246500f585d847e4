"""Common code of tests of `pycollectives.torch`: a few weights, gradients of one value, ranks as threads."""

from __future__ import annotations

import numpy as np
import torch

import pycollectives as pc
from pycollectives.partial_reduce.explicit import ExplicitGroups
from pycollectives.testing import run_ranks
from pycollectives.torch import EagerOptimizer

LIMIT = 30.0

torch.set_num_threads(1)


def ranks(size, program, **options):
    return run_ranks(size, program, timeout=60.0, **options)


def weights(*shapes, dtype=torch.float64):
    return [torch.nn.Parameter(torch.zeros(shape, dtype=dtype)) for shape in shapes]


def sgd(parameters, lr=1.0, **options):
    return torch.optim.SGD(parameters, lr=lr, **options)


def eager(optimizer, comm, policy=None, **options):
    return EagerOptimizer(optimizer, comm, policy or pc.Full(), timeout=LIMIT, **options)


def backward(parameters, gradient):
    """Give every element of every parameter this gradient."""
    sum(parameter.sum() * gradient for parameter in parameters).backward()


def meet(comm, why):
    """Wait for all ranks at a place where no rank waits for another in the script: `preduce` would demand a flush."""
    del why  # for readers of the script
    perform = comm._context.part(ExplicitGroups)._prepared(np.zeros(1), range(comm.size), pc.AVG, None)
    if perform is not None:  # there are other ranks
        perform(caller="preduce", timeout=LIMIT)


def values(parameters):
    return [set(parameter.detach().reshape(-1).tolist()) for parameter in parameters]
