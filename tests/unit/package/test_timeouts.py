"""Every call that takes a time limit refuses the same values in the same words, before anything is sent."""

import math

import numpy as np
import pytest
from mpi4py import MPI

import pycollectives as pc
from pycollectives.testing import run_ranks

ONE = np.ones(1)
ALONE = pc.topology.complete(1)


def served(comm):
    return comm.parameter_server(like=ONE, servers="node", update=pc.SGD(0.1))


def started(averaging):
    averaging.start(ONE)
    return averaging


CALLS = {
    "wait": lambda comm, ar, timeout: ar.contribute(ONE).wait(timeout),
    "allreduce": lambda comm, ar, timeout: ar.allreduce(ONE, timeout=timeout),
    "flush": lambda comm, ar, timeout: ar.flush(timeout),
    "wait_all": lambda comm, ar, timeout: pc.wait_all([ar.contribute(ONE)], timeout),
    "wait_any": lambda comm, ar, timeout: pc.wait_any([ar.contribute(ONE)], timeout),
    "preduce": lambda comm, ar, timeout: comm.preduce(ONE.copy(), [0], timeout=timeout),
    "mean": lambda comm, ar, timeout: comm.mean(1.0, timeout),
    "close": lambda comm, ar, timeout: comm.close(timeout),
    "sync": lambda comm, ar, timeout: comm.partial_reduce(like=ONE, groups=pc.SmartGroups(2)).sync(
        ONE.copy(), timeout=timeout
    ),
    "equalize": lambda comm, ar, timeout: comm.pairwise_averaging(like=ONE, topology=ALONE).equalize(timeout),
    "wait of neighbors": lambda comm, ar, timeout: started(comm.neighbor_averaging(like=ONE, topology=ALONE)).wait(
        timeout=timeout
    ),
    "iterations": lambda comm, ar, timeout: list(comm.hop(like=ONE, topology=ALONE).iterations(1, timeout)),
    "pull": lambda comm, ar, timeout: served(comm).pull(ONE.copy(), timeout),
    "push_pull": lambda comm, ar, timeout: served(comm).push_pull(ONE, ONE.copy(), timeout),
    "statistics": lambda comm, ar, timeout: served(comm).statistics(timeout),
    "Communicator": lambda comm, ar, timeout: pc.Communicator(MPI.COMM_SELF, timeout=timeout),
}
REFUSED = {
    "-1": (-1, ValueError, "timeout: expected seconds >= 0 or None, got -1"),
    "nan": (math.nan, ValueError, "timeout: expected seconds >= 0 or None, got nan"),
    "text": ("1", TypeError, "timeout: expected seconds or None, got '1'"),
    "list": ([], TypeError, r"timeout: expected seconds or None, got \[\]"),
}


@pytest.mark.parametrize("value", REFUSED)
@pytest.mark.parametrize("call", CALLS)
def test_a_bad_limit_is_refused(call, value):
    timeout, error, text = REFUSED[value]

    def program(comm):
        ar = comm.partial_allreduce(like=ONE)
        with pytest.raises(error, match=text):
            CALLS[call](comm, ar, timeout)

    run_ranks(1, program)
