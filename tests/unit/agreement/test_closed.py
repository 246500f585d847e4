"""Calls of a communicator that this rank has closed: each is refused here, before the engine is asked."""

import numpy as np
import pytest

import pycollectives as pc
from pycollectives.testing import loopback


@pytest.mark.parametrize(
    "call",
    [
        lambda comm: comm.__enter__(),
        lambda comm: comm.partial_allreduce(count=1, dtype="f8", policy="solo"),
        lambda comm: comm.partial_reduce(np.ones(1), groups=pc.groups.StaticGroups(1)),
        lambda comm: comm.preduce(np.ones(1), [0]),
        lambda comm: comm.is_same_on_all_ranks(np.ones(1)),
    ],
    ids=["with", "partial_allreduce", "partial_reduce", "preduce", "is_same_on_all_ranks"],
)
@pytest.mark.parametrize("end", ["close", "abort"])
def test_a_closed_communicator_refuses(call, end):
    (comm,) = loopback(1)
    getattr(comm, end)()
    with pytest.raises(pc.ClosedError, match=r"^the communicator is closed$"):
        call(comm)
