"""An optimizer that is made of an mpi4py communicator closes its own within its time limit, and again after that."""

from __future__ import annotations

import pytest
from mpi4py import MPI
from oracle import LIMIT

torch = pytest.importorskip("torch")

import pycollectives as pc  # noqa: E402
from pycollectives.torch import EagerOptimizer  # noqa: E402

WORLD = MPI.COMM_WORLD


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("call", ["close", "finish"])
def test_close_that_stalls_is_called_again(call, monkeypatch):
    """Rank 0 has left the collectives, and waits for the others to close the communicator."""
    parameter = torch.nn.Parameter(torch.zeros(2))
    optimizer = EagerOptimizer(torch.optim.SGD([parameter], lr=1.0), WORLD, pc.Full(), timeout=LIMIT)
    parameter.sum().backward()
    optimizer.step()
    if WORLD.rank == 0:
        close = optimizer._comm.close
        with monkeypatch.context() as patch:
            patch.setattr(optimizer._comm, "close", lambda *, timeout: close(timeout=timeout and 1.0))
            with pytest.raises(pc.StallError):
                getattr(optimizer, call)()
        assert optimizer.closed
        assert not optimizer._comm.closed
        with pytest.raises(pc.ClosedError):
            optimizer.step()
        for rank in range(1, WORLD.size):
            WORLD.send("rank 0 has stalled", rank)
        getattr(optimizer, call)()
    else:
        if call == "finish":
            optimizer.synchronize_parameters()
        optimizer.flush()
        WORLD.recv(source=0)
    optimizer.close()
    assert optimizer._comm.closed
    assert parameter.tolist() == [-1.0, -1.0]
    parameter.sum().backward()  # hooks are gone


def test_the_limit_is_that_of_its_communicator():
    parameter = torch.nn.Parameter(torch.zeros(2))
    with EagerOptimizer(torch.optim.SGD([parameter], lr=1.0), WORLD, timeout=LIMIT) as optimizer:
        assert optimizer._comm.timeout == LIMIT
