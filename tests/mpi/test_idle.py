"""Waiting costs the program nothing else: no core, no interpreter, no lost wake-up."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from mpi4py import MPI
from oracle import LIMIT

import pycollectives as pc

pytestmark = pytest.mark.one_communicator

WORLD = MPI.COMM_WORLD
ONE = np.ones(1, np.int64)


def test_no_wake_up_is_lost(comm):
    """Many short rounds, some found by testing, some by waiting."""
    ar = comm.partial_allreduce(count=1, dtype="int64", policy=pc.Full())
    for step in range(400):
        handle = ar.contribute(ONE)
        if (step + comm.rank) % 3 == 0:
            end = time.monotonic() + LIMIT
            while not handle.test():
                assert time.monotonic() < end
        assert handle.wait(timeout=LIMIT).round == step
        assert ar.result[0] == comm.size
    ar.leave()


def test_a_sleeping_program_does_not_burn_its_core(comm):
    """bench/idle.py measures how little it is; a loop that never sleeps would use all of the time here."""
    ar = comm.partial_allreduce(count=1, dtype="int64", policy="solo")
    time.sleep(0.05)
    cpu, wall = time.process_time(), time.monotonic()
    time.sleep(0.4)
    used = (time.process_time() - cpu) / (time.monotonic() - wall)
    assert used < 0.5, f"{100 * used:.0f} % of a core"
    ar.flush(timeout=LIMIT)
    ar.leave()


@pytest.mark.mpi(min_size=2)
def test_the_interpreter_is_free_while_a_call_waits(comm):
    """Another thread of this process answers while this one waits for the last rank."""
    ar = comm.partial_allreduce(count=1, dtype="int64", policy=pc.Full())
    if comm.rank == comm.size - 1:
        for rank in range(comm.size - 1):
            WORLD.recv(source=rank, tag=9)
    else:

        def tell():
            time.sleep(0.05)
            WORLD.send(None, comm.size - 1, tag=9)

        teller = threading.Thread(target=tell)
        teller.start()
    assert ar.allreduce(ONE, timeout=LIMIT)[0][0] == comm.size
    ar.leave()
