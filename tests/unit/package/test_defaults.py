"""What is made without a policy: the same everywhere, except where a program asks for MPI's own call."""

from __future__ import annotations

import inspect
import time

import numpy as np
import pytest

import pycollectives as pc
from pycollectives import policies
from pycollectives.testing import run_ranks
from pycollectives.train.synchronizers import eager


def default_of(call):
    return inspect.signature(call).parameters["policy"].default


def test_a_partial_allreduce_is_a_quorum_of_half_of_the_ranks():
    assert run_ranks(4, lambda comm: comm.partial_allreduce(count=1, dtype="f8").policy) == [pc.Quorum(2)] * 4


def test_the_default_is_the_same_for_arrays_optimizers_and_trainings():
    torch = pytest.importorskip("pycollectives.torch", exc_type=ImportError)
    assert default_of(pc.Communicator.partial_allreduce) == pc.Quorum()
    assert default_of(torch.EagerOptimizer) == pc.Quorum()
    assert policies.parse(default_of(eager.Eager), seed=7) == pc.Quorum()
    assert policies.parse(eager.DEFAULT_POLICY, seed=7) == pc.Quorum()


def test_a_request_of_mpi_waits_for_all_ranks():
    """A quorum of two would not wait for rank 2, which comes late."""

    def program(comm):
        send, recv = np.full(2, comm.rank + 1.0), np.zeros(2)
        request = pc.Allreduce_init(send, recv, "SUM", comm)
        found = []
        for _ in range(3):
            time.sleep(0.05 if comm.rank == 2 else 0.0)
            request.Start()
            found.append((request.Wait(timeout=30).contributors, recv.tolist()))
        request.Free()
        return found

    assert default_of(pc.Allreduce_init) == pc.Full()
    assert run_ranks(3, program) == [[((0, 1, 2), [6.0, 6.0])] * 3] * 3
