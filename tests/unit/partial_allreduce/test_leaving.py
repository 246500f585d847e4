"""Requests that are open when their rank leaves: they can be waited for, whatever the others do meanwhile."""

import itertools
import threading
import time

import numpy as np
import pytest

import pycollectives as pc
from pycollectives.testing import run_ranks

LIMIT = 30.0
LONG = 1 << 15
"""Elements: from 256 KiB on, results are released early."""


@pytest.mark.parametrize("ranks_per_node", [1, "all"])
@pytest.mark.parametrize("rounds", [0, 1, 3, 20])
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
@pytest.mark.parametrize("missed", ["sum", "latest"])
def test_open_requests_are_given_what_was_complete(missed, order, rounds, ranks_per_node):
    """Rank 1 makes three rounds and leaves; rank 0 makes more. Under "sum" each of the three is given once."""
    left, went_on = threading.Event(), threading.Event()

    def program(comm):
        ar = comm.partial_allreduce(np.zeros(LONG), policy="solo", missed=missed, history=1)
        if comm.rank == 0:
            assert left.wait(LIMIT)
            for _ in range(rounds):
                ar.contribute(np.full(LONG, 1000.0)).wait(timeout=LIMIT)
            went_on.set()
            return None
        requests = []
        for number in range(3):
            requests.append(ar.contribute(np.full(LONG, 10.0**number)))
            while ar.rounds <= number:
                time.sleep(0)
        ar.leave()
        left.set()
        assert went_on.wait(LIMIT)
        given = []
        for index in order:
            info = requests[index].wait(timeout=LIMIT)
            given.append((info.round, float(ar.result[0])))
        return given

    given = run_ranks(2, program, ranks_per_node=ranks_per_node)[1]
    assert all(number <= 2 for number, _ in given)
    if missed == "sum":
        assert sum(value for _, value in given) == 111.0
    else:
        assert given[-1][1] in (1.0, 10.0, 100.0)
        assert (2, 100.0) in given


@pytest.mark.parametrize("ranks_per_node", [1, "all"])
def test_a_request_of_a_round_under_way(ranks_per_node):
    """It completes after its rank has left."""
    left = threading.Event()

    def program(comm):
        ar = comm.partial_allreduce(np.zeros(LONG), policy="full", missed="sum")
        if comm.rank == 1:
            assert left.wait(LIMIT)
        request = ar.contribute(np.full(LONG, 1.0 + comm.rank))
        if comm.rank == 0:
            ar.leave()
            left.set()
        request.wait(timeout=LIMIT)
        value = float(ar.result[0])
        if comm.rank == 1:
            with pytest.raises(pc.ClosedError):
                ar.leave() or ar.contribute(np.zeros(LONG))
        return value

    assert run_ranks(2, program, ranks_per_node=ranks_per_node) == [3.0, 3.0]


@pytest.mark.parametrize("ranks_per_node", [1, "all"])
def test_a_late_call_before_the_last_flush(ranks_per_node):
    """Rank 0 is given the flush round and leaves: it stays there for rank 1, which comes for it afterwards."""
    first, left = threading.Event(), threading.Event()

    def program(comm):
        ar = comm.partial_allreduce(np.zeros(LONG), policy="solo")
        if comm.rank == 1:
            ar.allreduce(np.ones(LONG), timeout=LIMIT)
            ar.start_flush()
            first.set()
            assert left.wait(LIMIT)
            ar.flush(timeout=LIMIT)
            return float(ar.result[0])
        assert first.wait(LIMIT)
        ar.allreduce(np.full(LONG, 10.0), timeout=LIMIT)
        ar.flush(timeout=LIMIT)
        ar.leave()
        left.set()
        return float(ar.result[0])

    assert run_ranks(2, program, ranks_per_node=ranks_per_node) == [10.0, 10.0]
