"""What a parameter server makes of pushes that come one after the other, computed by hand; ranks as threads."""

import threading

import numpy as np
import pytest

from pycollectives import servers
from pycollectives.testing import run_ranks

LIMIT = 30.0
MANY = np.zeros(20_000)
WHERE = [{"servers": 1, "workers": [0, 1, 2]}, {"servers": 2, "workers": [0, 1, 2]}, {"servers": "node"}]

where = pytest.mark.parametrize("where", WHERE, ids=["one", "two", "node"])
shapes = pytest.mark.parametrize("ranks_per_node", [1, 2, "all"])

PULLS = [(1, "pull"), (2, "pull"), (0, "pull")]
SCRIPTS = {
    "each is an update": (servers.ASP(), [(0, 1), (1, 2), (2, 4), (0, 8), (0, 16)], 31),
    "a mean of three": (servers.BSP(), [(2, 1), (0, 5), (1, 9)], 5),
    "one leaves before the others push": (servers.BSP(), [(0, 1), (0, "leave"), (1, 5), (2, 9)], 5),
    "one leaves when the others have pushed": (servers.BSP(), [(0, 4), (2, 6), (1, "leave")], 5),
    "one comes back": (servers.BSP(), [(0, "leave"), (1, 1), (2, 3), *PULLS, (0, 2), (1, 4), (2, 6)], 6),
    "a batch": (servers.Rennala(3), [(0, 3), (1, 6), (0, 9), (1, 100)], 6),
    "a batch of who has left": (servers.Rennala(3), [(0, 3), (0, 6), (0, "leave"), (1, 9)], 6),
    "a table": (servers.Ringleader(), [(2, "leave"), (0, 1), (0, 2), (1, 10)], 5.75),
    "the table again": (servers.Ringleader(), [(2, "leave"), (0, 1), (0, 2), (1, 10), (0, 3)], 11.75),
    "the next table": (
        servers.Ringleader(),
        [(2, "leave"), (0, 1), (0, 2), (1, 10), (0, 3), (0, 4), (1, 20)],
        23.75,
    ),
    "... again": (
        servers.Ringleader(),
        [(2, "leave"), (0, 1), (0, 2), (1, 10), (0, 3), (0, 4), (1, 20), (0, 5)],
        36,
    ),
    "what comes early": (
        servers.Ringleader(),
        [(2, "leave"), (0, 1), (1, 3), (1, 8), (1, 4), (0, 2), (0, 10)],
        12.25,
    ),
}


@shapes
@where
@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_by_hand(script, where, ranks_per_node):
    """Updates are what is pushed, of a rate of -1."""
    sync, calls, expected = script
    met = threading.Barrier(3)

    def program(comm):
        with comm.parameter_server(MANY, sync=sync, update=servers.SGD(1.0), **where) as ps:
            w = MANY.copy()
            for rank, value in calls:
                if comm.rank == rank:
                    if value == "leave":
                        ps.suspend()
                    elif value == "pull":
                        ps.pull(w, timeout=LIMIT)
                    elif isinstance(sync, servers.BSP):
                        ps.push(MANY - value)
                    else:
                        ps.push_pull(MANY - value, w, timeout=LIMIT)
                    ps.server_statistics(timeout=LIMIT)  # the coordinator has heard of it
                met.wait(LIMIT)
            ps.pull(w, timeout=LIMIT)
            met.wait(LIMIT)  # who has left waits for no update
            ps.pull(w, timeout=LIMIT)
            met.wait(LIMIT)
            return w.min(), w.max()

    for low, high in run_ranks(3, program, ranks_per_node=ranks_per_node):
        assert (low, high) == pytest.approx((expected, expected), rel=1e-12)


@shapes
@where
@pytest.mark.parametrize("dtype", ["f8", "f2"])
def test_weighted_updates(where, ranks_per_node, dtype):
    """Each gradient times a weight of its own, some applied by their worker and some by the server, at once."""
    met = threading.Barrier(3)
    like = np.zeros(20_000, dtype)

    def program(comm):
        with comm.parameter_server(like, sync=servers.Rescaled(), update=servers.SGD(1.0), **where) as ps:
            w = like.copy()
            for k in range(12):
                if (k + comm.rank) % 3:
                    ps.push_pull(like + 1, w, timeout=LIMIT)
                else:
                    ps.push(like + 1)
            ps.pull(w, timeout=LIMIT)
            met.wait(LIMIT)
            ps.pull(w, timeout=LIMIT)
            met.wait(LIMIT)
            return ps.version, np.ptp(w), w[0] < 0

    assert run_ranks(3, program, ranks_per_node=ranks_per_node) == [(36, 0, True)] * 3


@shapes
@where
def test_pushes_that_nobody_pulls_after(where, ranks_per_node):
    """Each waits until the one before is out of its way: none is overwritten, none is applied twice."""
    met = threading.Barrier(3)

    def program(comm):
        with comm.parameter_server(MANY, sync=servers.ASP(), update=servers.SGD(1.0), **where) as ps:
            gradient = MANY.copy()
            for k in range(24):
                gradient[:] = -float(4**comm.rank * (1 + k % 3))
                ps.push(gradient)
            ps.pull(gradient, timeout=LIMIT)
            met.wait(LIMIT)
            ps.pull(gradient, timeout=LIMIT)
            met.wait(LIMIT)
            return gradient.min(), gradient.max(), ps.version

    total = 48.0 * (1 + 4 + 16)
    assert run_ranks(3, program, ranks_per_node=ranks_per_node) == [(total, total, 72)] * 3
