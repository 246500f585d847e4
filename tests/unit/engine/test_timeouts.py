"""`timeout=None` means the communicator's default, in every call that waits for other ranks; `math.inf` is no limit."""

import math
import threading
import time

import numpy as np
import pytest

import pycollectives as pc
from pycollectives.testing import loopback, run_ranks

ONE = np.ones(1)
DEFAULT = 1.0  # creation is to be done by then, too
LIMIT = 60.0

WAITING = {
    "allreduce": lambda comm, ar, pr: ar.allreduce(ONE),
    "wait": lambda comm, ar, pr: ar.contribute(ONE).wait(),
    "wait_all": lambda comm, ar, pr: pc.wait_all([ar.contribute(ONE)]),
    "wait_any": lambda comm, ar, pr: pc.wait_any([ar.contribute(ONE)]),
    "flush": lambda comm, ar, pr: ar.flush(),
    "sync": lambda comm, ar, pr: pr.average(np.ones(1)),
    "preduce": lambda comm, ar, pr: comm.preduce(np.ones(1), [0, 1]),
    "agree": lambda comm, ar, pr: comm.is_same_on_all_ranks(ONE),
    "close": lambda comm, ar, pr: comm.close(),
}


@pytest.mark.parametrize("ranks_per_node", [1, "all"])
@pytest.mark.parametrize("call", WAITING)
def test_the_default_limits_each_call(call, ranks_per_node):
    outcome = []

    def program(comm):
        ar = comm.partial_allreduce(ONE, policy=pc.Full())
        pr = comm.partial_reduce(ONE, groups=pc.groups.RandomGroups(size=2))
        if comm.rank == 0:
            with pytest.raises(pc.StallError):
                WAITING[call](comm, ar, pr)
            outcome.append("stalled")
        else:
            gone.wait(LIMIT)  # never comes to the call
        comm.abort()

    gone = threading.Event()
    comms = loopback(2, timeout=DEFAULT, ranks_per_node=ranks_per_node)
    threads = [threading.Thread(target=program, args=(comm,)) for comm in comms]
    for thread in threads:
        thread.start()
    threads[0].join(LIMIT)
    gone.set()
    threads[1].join(LIMIT)
    assert outcome == ["stalled"]


@pytest.mark.parametrize("timeout", [math.inf, 30.0])
@pytest.mark.parametrize("call", ["wait", "wait_all", "wait_any", "allreduce", "flush"])
def test_a_limit_of_its_own_goes_before_the_default(call, timeout):
    calls = {
        "wait": lambda ar: ar.contribute(ONE).wait(timeout=timeout),
        "wait_all": lambda ar: pc.wait_all([ar.contribute(ONE)], timeout=timeout),
        "wait_any": lambda ar: pc.wait_any([ar.contribute(ONE)], timeout=timeout),
        "allreduce": lambda ar: ar.allreduce(ONE, timeout=timeout),
        "flush": lambda ar: ar.flush(timeout=timeout),
    }

    def program(comm):
        ar = comm.partial_allreduce(ONE, policy=pc.Full())
        if comm.rank == 1:
            time.sleep(2 * DEFAULT)
        calls[call](ar)
        comm.abort()
        return True

    assert run_ranks(loopback(2, timeout=DEFAULT, ranks_per_node=1), program, timeout=LIMIT) == [True, True]


@pytest.mark.parametrize("timeout", [None, math.inf, 1e300, 30.0])
def test_closing_with_any_limit(timeout):
    with loopback(1, timeout=math.inf)[0] as comm:
        comm.partial_allreduce(ONE)
        comm.close(timeout=timeout)
        assert comm.closed
