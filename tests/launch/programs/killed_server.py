"""A rank is killed by SIGKILL under a parameter server; the others say what they are told, and when.

killed_server.py RANKS PHASE SERVERS SYNC VICTIM SEED: PHASE is one of `PHASES`; SERVERS is "node", or how many serve;
all ranks are workers.
"""

import random
import time

import numpy as np
from common import WORLD, arguments, say
from death import die, die_later, time_of_death

import pycollectives as pc

phase, servers, sync, *numbers = arguments()
victim, seed = map(int, numbers)
COUNT = 1 << 20
CALLS_BEFORE_DEATH = 3


def made(comm, **options):
    return comm.parameter_server(
        np.zeros(COUNT, np.float32),
        servers=servers if servers == "node" else int(servers),
        workers=range(comm.size),
        **{"sync": sync, "update": pc.servers.SGD(1.0), **options},
    )


def creation(comm):
    while True:
        yield
        made(comm).close()


def pushes(comm, **options):
    ps = made(comm, **options)
    w, gradient = np.zeros(COUNT, np.float32), np.ones(COUNT, np.float32)
    while True:
        yield
        ps.push_pull(gradient, w, timeout=15)
        if np.ptp(w) != 0 and len(ps.servers) <= 1:
            say(f"wrong result: {np.unique(w)}")


def pulls(comm):
    ps = made(comm)
    w = np.zeros(COUNT, np.float32)
    while True:
        yield
        ps.pull(w, timeout=15)


def leaves(comm):
    ps = made(comm)
    w = np.zeros(COUNT, np.float32)
    while True:
        yield
        ps.push_pull(w, w, timeout=15)
        ps.suspend()


def closing(comm):
    """The others have closed it, and wait for the victim."""
    ps = made(comm)
    yield
    if comm.rank == victim:
        time.sleep(60)
    ps.leave()
    comm.close(timeout=15)


def elastic(comm):
    ps = made(comm, sync=pc.servers.EAMSGD(1, 0.1), update=None)
    w = np.full(COUNT, float(comm.rank), np.float32)
    while True:
        yield
        ps.push_pull(w, w, timeout=15)


def function(comm):
    """The victim dies in its function, which has changed half of its weights."""
    calls = []

    def update(weights, gradient):
        half = len(weights) // 2
        weights[:half] -= gradient[:half]
        calls.append(0)
        if comm.rank == victim and len(calls) > CALLS_BEFORE_DEATH:
            die()
        weights[half:] -= gradient[half:]

    return pushes(comm, update=update)


PHASES = {each.__name__: each for each in (creation, pushes, pulls, leaves, closing, elastic, function)}

try:
    with pc.Communicator(WORLD) as comm:
        steps = PHASES[phase](comm)
        next(steps)
        if comm.rank == victim and phase != "function":
            die_later(random.Random(seed).uniform(0.0, 0.2))
        for _ in steps:
            pass
except pc.RankFailedError as error:
    say(f"{time.monotonic() - time_of_death():.2f} s")
    say(f"{error}")
say("end")
