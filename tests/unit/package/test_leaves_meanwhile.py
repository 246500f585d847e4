"""A thread leaves a collective while another is at the beginning of a call: the call is refused, and sends nothing."""

import threading
import time

import numpy as np
import pytest
from gate import Gate

import pycollectives as pc
from pycollectives import _testing
from pycollectives.testing import loopback, run_ranks

LIMIT = 30.0
COUNT = 1 << 20


@pytest.mark.parametrize(("policy", "is_in"), [("solo", False), ("full", True)])
def test_data_that_is_being_copied_is_refused_or_in_a_round(policy, is_in):
    """A call that joins a round adds its data in it: `leave` waits for that."""
    gate = Gate(np.ones(COUNT))
    left = threading.Event()
    said = []

    def contribute(ar):
        try:
            ar.contribute(gate.array)
            said.append("contributed")
        except pc.ClosedError as error:
            said.append(str(error))

    def program(comm):
        ar = comm.partial_allreduce(np.zeros(COUNT), policy=policy, name="own")
        if comm.rank == 0:
            thread = threading.Thread(target=contribute, args=(ar,))
            thread.start()
            gate.wait_until_reached(thread)
            threading.Timer(0.2, gate.open).start()
            ar.leave()
            left.set()
            thread.join(LIMIT)
            return None
        assert left.wait(LIMIT)
        result, info = ar.allreduce(np.full(COUNT, 10.0), timeout=LIMIT)
        return result[0], info.contributors

    with gate:
        got = run_ranks(2, program, timeout=LIMIT)[1]
    assert got == ((11.0, (0, 1)) if is_in else (10.0, (1,)))
    assert said == ["contributed" if is_in else "'own' is closed"]


def leave_at_the_beginning_of(call, comms, make):
    """Make a collective on two ranks; rank 1's engine is aborted when `call` of it waits for the engine's lock."""
    made = [None, None]
    held = [None, None]
    said = []
    engine = comms[1]._engine

    def calling():
        try:
            call(made[1])
        except pc.ClosedError as error:
            said.append(str(error))

    thread = threading.Thread(target=calling)

    def begin():
        if thread.ident is not None:
            return
        thread.start()
        while not _testing.is_wanted(engine):
            time.sleep(0.001)

    def create(comm):
        held[comm.rank] = _testing.CalledAtAbort(comm._engine, begin if comm.rank == 1 else int)
        made[comm.rank] = make(comm)

    creating = [threading.Thread(target=create, args=(comm,)) for comm in comms]
    for each in creating:
        each.start()
    for each in creating:
        each.join(LIMIT)
    engine.abort()
    thread.join(LIMIT)
    assert said == ["'own' is closed"]
    return made[0], held


@pytest.mark.parametrize("ranks_per_node", [1, "all"])
def test_an_average_that_has_not_asked_for_a_group_does_not(ranks_per_node):
    comms = loopback(2, ranks_per_node=ranks_per_node)
    x = np.ones(2)
    other, held = leave_at_the_beginning_of(
        lambda pr: pr.average(x, 0, timeout=LIMIT),
        comms,
        lambda comm: comm.partial_reduce(np.ones(2), groups=pc.groups.RandomGroups(2), name="own"),
    )
    assert 0 in other.average(x, 0, timeout=LIMIT).group  # with rank 1, if it was drawn before it left
    assert other.average(x, 1, timeout=LIMIT).group == (0,)
    for hook in held:
        hook.end()
    for comm in comms:
        comm.abort()


@pytest.mark.parametrize("ranks_per_node", [1, "all"])
def test_a_step_of_push_sum_that_has_not_begun_does_not(ranks_per_node):
    comms = loopback(2, ranks_per_node=ranks_per_node)
    ring = pc.topology.Topology(2, [(0, 1), (1, 0)])
    other, held = leave_at_the_beginning_of(
        lambda ps: ps.start(np.ones(1)), comms, lambda comm: comm.push_sum(np.ones(1), topology=ring, name="own")
    )
    other.start(np.ones(1)).wait(timeout=LIMIT)
    final = other.final(timeout=LIMIT)
    assert (final[0], other.weight) == (1.0, 1.0)
    for hook in held:
        hook.end()
    for comm in comms:
        comm.abort()
