"""Common code of tests of a parameter server over MPI: where its servers are, and when it has settled."""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI
from oracle import LIMIT

import pycollectives as pc

WORLD = MPI.COMM_WORLD
P = WORLD.size
WHERE = {
    "one": {"servers": 1},
    "two": {"servers": min(2, P)},
    "all": {"servers": P},
    "last": {"servers": [P - 1], "workers": range(P)},
    "node": {"servers": "node"},
}
EACH_IS_AN_UPDATE = [
    pc.servers.ASP(),
    pc.servers.SSP(2),
    pc.servers.DSSP(1, 4),
    pc.servers.ElasticBSP(5),
    pc.servers.Ringmaster(1000),
]

where = pytest.mark.parametrize("where", WHERE.values(), ids=WHERE)


def settled(ps, like):
    """Return the weights after the effect of all pushes; collective."""
    out = np.empty_like(like)
    WORLD.Barrier()  # after the last pull of every worker
    ps.pull(out, timeout=LIMIT)
    WORLD.Barrier()
    return out
