"""Ranks die one after the other; the others shrink their communicator and go on, until the planned ones are left.

shrinks.py RANKS PHASE SEED VICTIM...: the first victim dies at some moment of rounds; those after it "later", in rounds
too, or "meanwhile", while the others shrink. With "late" one of the survivors gives up waiting for another, which comes
late, and comes again.
"""

import random
import time
from os import environ
from pathlib import Path

import numpy as np
from common import WORLD, arguments, say
from death import die_later

import pycollectives as pc

phase, *numbers = arguments()
seed, *victims = map(int, numbers)
source = random.Random(f"{seed} {WORLD.rank}")
STALLED = Path(environ["DEATH"] + ".stalled")
BIT = np.array([1 << WORLD.rank])


def rounds(comm):
    """Make rounds without an end; each has the data of exactly its contributors."""
    policy = "full" if seed % 2 else "majority"
    ar = comm.partial_allreduce(BIT, policy=policy, late="replace", missed="latest")
    while True:
        result, info = ar.allreduce(BIT, timeout=20)
        assert bin(int(result[0])).count("1") == len(info.contributors), (result, info)


def members(comm):
    """Return the first numbers of its ranks."""
    with comm.partial_allreduce(BIT, policy="full") as ar:
        result, _ = ar.allreduce(BIT, timeout=20)
    return [rank for rank in range(WORLD.size) if int(result[0]) >> rank & 1]


def shrunk(comm):
    if phase == "meanwhile" and WORLD.rank in victims[1:]:
        die_later(source.uniform(0.0, 0.1))
    if phase == "late" and comm.rank == 0:
        while not STALLED.exists():
            time.sleep(0.01)
    if phase == "late" and comm.rank == comm.size - 1:
        try:
            comm.shrink(timeout=1.0)
        except pc.StallError as error:
            say("stalled:", error)
        STALLED.touch()
    return comm.shrink(timeout=20)


comm = pc.Communicator(WORLD)
if WORLD.rank in victims and (phase == "later" or WORLD.rank == victims[0]):
    die_later(source.uniform(0.2, 0.6) + 0.7 * victims.index(WORLD.rank))
while comm.size > WORLD.size - len(victims):
    try:
        rounds(comm)
    except pc.RankFailedError:
        comm = shrunk(comm)
say("members:", *members(comm))

with comm:
    assert comm.mean(float(comm.rank)) == (comm.size - 1) / 2
    with comm.partial_reduce(np.zeros(10)) as pr:
        pr.average(np.ones(10))
    with comm.hop(np.zeros(10), topology="ring") as hop:
        for _ in hop.iterations(2):
            hop.step(np.ones(10))
    with comm.parameter_server(np.zeros(10), update=pc.servers.SGD(1.0), servers="node") as ps:
        ps.push_pull(np.ones(10), np.empty(10))
    with comm.neighbor_averaging(np.zeros(10), topology="ring") as na:
        na.average(np.ones(10))
    with comm.pairwise_averaging(np.zeros(10), topology="ring") as pa:
        pa.apply(np.ones(10))
say("end")
