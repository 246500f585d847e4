"""Every call that takes a time limit refuses the same values in the same words, before anything is sent."""

import math

import numpy as np
import pytest
from mpi4py import MPI

import pycollectives as pc
from pycollectives.testing import run_ranks

ONE = np.ones(1)
ALONE = pc.topology.complete(1)


def served(comm, **options):
    return comm.parameter_server(ONE, servers="node", update=pc.servers.SGD(0.1), **options)


CALLS = {
    "wait": lambda comm, ar, timeout: ar.contribute(ONE).wait(timeout=timeout),
    "allreduce": lambda comm, ar, timeout: ar.allreduce(ONE, timeout=timeout),
    "flush": lambda comm, ar, timeout: ar.flush(timeout=timeout),
    "wait_all": lambda comm, ar, timeout: pc.wait_all([ar.contribute(ONE)], timeout=timeout),
    "wait_any": lambda comm, ar, timeout: pc.wait_any([ar.contribute(ONE)], timeout=timeout),
    "preduce": lambda comm, ar, timeout: comm.preduce(ONE.copy(), [0], timeout=timeout),
    "mean": lambda comm, ar, timeout: comm.mean(1.0, timeout=timeout),
    "close": lambda comm, ar, timeout: comm.close(timeout=timeout),
    "create": lambda comm, ar, timeout: comm.partial_allreduce(ONE, timeout=timeout),
    "average": lambda comm, ar, timeout: comm.partial_reduce(ONE).average(ONE.copy(), timeout=timeout),
    "equalize": lambda comm, ar, timeout: comm.pairwise_averaging(ONE, topology=ALONE).equalize(timeout=timeout),
    "wait of neighbors": lambda comm, ar, timeout: comm.neighbor_averaging(ONE).start(ONE).wait(timeout=timeout),
    "iterations": lambda comm, ar, timeout: list(comm.hop(ONE, topology=ALONE).iterations(1, timeout=timeout)),
    "push": lambda comm, ar, timeout: served(comm).push(ONE.copy(), timeout=timeout),
    "pull": lambda comm, ar, timeout: served(comm).pull(ONE.copy(), timeout=timeout),
    "push_pull": lambda comm, ar, timeout: served(comm).push_pull(ONE, ONE.copy(), timeout=timeout),
    "give_up": lambda comm, ar, timeout: served(comm, sync=pc.servers.MindFlayer(1, 0.05)).give_up(timeout=timeout),
    "server_statistics": lambda comm, ar, timeout: served(comm).server_statistics(timeout=timeout),
    "suspend": lambda comm, ar, timeout: served(comm).suspend(timeout=timeout),
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
        ar = comm.partial_allreduce(ONE)
        with pytest.raises(error, match=text):
            CALLS[call](comm, ar, timeout)

    run_ranks(1, program)
