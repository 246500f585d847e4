"""A rank dies at some moment of what all ranks do; the others say, as JSON, what they are told and how soon.

killed_in_phase.py RANKS PHASE VICTIM SIGNAL SEED
"""

import ctypes
import json
import os
import random
import signal
import threading
import time

import numpy as np
from common import WORLD, arguments, say
from death import die_later, note_death, time_of_death
from gate import Gate

import pycollectives as pc

phase, *numbers = arguments()
victim, number, seed = map(int, numbers)
sleeper = (victim + 1) % WORLD.size
SMALL_STEP = np.zeros(1 << 20, np.float32)
SHORT, LONG = np.ones(4, np.float32), np.ones(1 << 20, np.float32)


def rounds(policy, data=SHORT, pause=0.0, late="replace"):
    """Return a program that calls a partial allreduce again and again."""

    def program(comm):
        ar = comm.partial_allreduce(data, policy=policy, late=late, missed="latest")
        while True:
            if pause and comm.rank in (sleeper, victim):
                time.sleep(pause)
            yield
            ar.allreduce(data, timeout=15)

    return program


def joining(comm):
    """The victim dies in the middle of its array, which it is reducing into the sum of a round that others wait for."""
    ar = comm.partial_allreduce(LONG, policy="full")
    ar.allreduce(LONG, timeout=15)
    gate = Gate(LONG)
    yield
    if comm.rank == victim:
        threading.Thread(target=die_at_the_gate, daemon=True).start()
        with gate:
            ar.allreduce(gate.array, timeout=15)
    while True:
        ar.allreduce(LONG, timeout=15)
        yield


def die_at_the_gate():
    time.sleep(0.5)
    note_death()  # without the gate's handler SIGSEGV ends who waits there, before this thread can
    ctypes.CDLL(None).signal(number, None)  # no other handler, whose the gate's may be
    os.kill(os.getpid(), number)


def flushes(comm):
    ar = comm.partial_allreduce(SHORT, policy="solo")
    while True:
        yield
        ar.contribute(SHORT).wait(timeout=15)
        ar.flush(timeout=15)


def groups(comm):
    pr = comm.partial_reduce(LONG, groups=pc.groups.SmartGroups(2))
    while True:
        yield
        pr.average(LONG, timeout=15)


def pairwise(comm):
    avg = comm.pairwise_averaging(LONG, topology=pc.topology.complete(comm.size))
    while True:
        yield
        avg.apply(SMALL_STEP)
        time.sleep(0.001)


def neighbors(comm):
    na = comm.neighbor_averaging(LONG, topology=pc.topology.complete(comm.size))
    while True:
        yield
        na.average(LONG, timeout=15)


def repeated(call):
    def program(comm):
        while True:
            yield
            call(comm)

    return program


def closing(comm):
    comm.partial_allreduce(SHORT)
    yield
    if comm.rank == victim:
        time.sleep(30)
    comm.close(timeout=15)


def idle(comm):
    ar = comm.partial_allreduce(SHORT, policy="full")
    for pause in (0.0, 0.8):
        time.sleep(pause)
        yield
        ar.allreduce(SHORT, timeout=15)


PHASES = {
    "solo": rounds("solo"),
    "majority": rounds("majority"),
    "quorum": rounds("quorum"),
    "full": rounds("full"),
    "long solo": rounds("solo", LONG),
    "long quorum": rounds("quorum", LONG, late="accumulate"),
    "long full": rounds("full", LONG),
    "joining": joining,
    "asleep": rounds("full", pause=0.5),
    "idle": idle,
    "flush": flushes,
    "groups": groups,
    "pairwise": pairwise,
    "neighbors": neighbors,
    "preduce": repeated(lambda comm: comm.preduce(LONG, range(comm.size), timeout=15)),
    "compare": repeated(lambda comm: comm.is_same_on_all_ranks(SHORT)),
    "create": repeated(lambda comm: comm.partial_allreduce(SHORT).leave()),
    "communicator": repeated(lambda comm: pc.Communicator(WORLD, timeout=15).close()),
    "closing": closing,
}

told = {"error": None}
called = 0.0
try:
    with pc.Communicator(WORLD, timeout=15) as comm:
        steps = PHASES[phase](comm)
        next(steps)
        comm.preduce(np.ones(1), range(comm.size))  # all have begun
        if comm.rank == victim and phase != "joining":
            die_later(random.Random(seed).uniform(0.1, 0.4), signal.Signals(number))
        until = time.monotonic() + 20
        for _ in steps:
            called = time.monotonic()
            if called > until:
                break
except Exception as error:
    after = time.monotonic() - max(called, time_of_death())
    told = {"error": type(error).__name__, "ranks": getattr(error, "ranks", None), "after_s": after, "text": str(error)}
say(json.dumps(told))
say("end", time.monotonic())
