"""The program that a new user writes first: a training loop with default options, in which some ranks are slow."""

from __future__ import annotations

import time

import numpy as np
import pytest
from mpi4py import MPI

import pycollectives as pc

STEPS = 20
LOADS = {
    "linear": lambda rank, step: 5e-4 * (rank + 1),
    "one late": lambda rank, step: 5e-3 if rank == 0 else 2e-4,
    "rotating": lambda rank, step: 3e-3 if step % MPI.COMM_WORLD.size == rank else 0.0,
    "none": lambda rank, step: 0.0,
}


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("policy", [pc.Quorum(), "solo"], ids=str)
def test_linear_regression(comm, policy, load):
    """All ranks end with the weights to which all gradients lead that any rank has computed."""
    rng = np.random.default_rng(comm.rank)
    features = rng.normal(size=(STEPS, 8, 3))
    targets = features @ np.array([1.0, -2.0, 3.0])
    weights, own = np.zeros(3), np.zeros(3)
    with comm.partial_allreduce(weights, op=MPI.SUM, policy=policy) as gradients:
        for step in range(STEPS):
            time.sleep(LOADS[load](comm.rank, step))
            gradient = features[step].T @ (features[step] @ weights - targets[step]) / 8
            own += gradient
            gradients.contribute(gradient).wait(timeout=30.0)
            weights -= 0.05 * gradients.result / comm.size
        gradients.flush(timeout=30.0)
        weights -= 0.05 * gradients.result / comm.size
    of_all = MPI.COMM_WORLD.allreduce(own)
    np.testing.assert_allclose(weights, -0.05 * of_all / comm.size, rtol=0, atol=1e-6)
