"""Ranks die one after the other, and the others continue: no contribution is lost, or counted twice.

continues.py RANKS POLICY MISSED APART STEPS SEED VICTIM...: each rank contributes once in a step, with an element of
its own for each step. The victims die about APART seconds one after the other.
"""

import random
import time

import numpy as np
from common import WORLD, arguments, say
from death import die_later

import pycollectives as pc

policy, missed, apart, *numbers = arguments()
steps, seed, *victims = map(int, numbers)
APART_S = float(apart)
source = random.Random(f"{seed} {WORLD.rank}")

changes = []
comm = pc.Communicator(WORLD, on_failure="continue", timeout=30)
comm.on_change(changes.append)
WORLD.Barrier()  # a death in the constructor is an error
dies_early = APART_S < 0.05  # also while the collective is made


def plan_death():
    if comm.rank in victims:
        die_later(source.uniform(0.0, 0.4) * APART_S + APART_S * victims.index(comm.rank))


if dies_early:
    plan_death()
shape = (WORLD.size, steps)
total = np.zeros(shape, np.int64)
lost = set()
infos = {}
with comm:
    ar = comm.partial_allreduce(total, policy=policy, missed=missed, late="accumulate")
    if not dies_early:
        WORLD.Barrier()
        plan_death()
    begin = time.monotonic()
    requests = []

    def receive(info):
        global total
        total = total + ar.result
        lost.update(info.lost)

    def allreduce(x):
        _, info = ar.allreduce(x)
        receive(info)
        if info.missed == 0:  # the result is that of the round
            infos[info.round] = (info.contributors, info.epoch, hash(ar.result.tobytes()))

    for step in range(steps):
        x = np.zeros(shape, np.int64)
        x[comm.rank, step] = 1
        if source.random() < 0.3:
            time.sleep(source.uniform(0, 2e-3))
        if source.random() < 0.5:
            requests.append(ar.contribute(x))
            x[:] = -1
        elif not requests:
            allreduce(x)
        else:
            requests.append(ar.contribute(x))
        while requests and (len(requests) > 3 or source.random() < 0.5):
            request = requests.pop(source.randrange(len(requests)))
            while source.random() < 0.5 and not request.test():
                pass
            receive(request.wait())
        if victims and step == steps // 2:  # all deaths are within the job
            while time.monotonic() < begin + 0.1 + APART_S * len(victims):
                if not requests:
                    allreduce(np.zeros(shape, np.int64))
                else:
                    receive(requests.pop(0).wait())
    while requests:
        receive(requests.pop(0).wait())
    info = ar.flush()
    total += ar.result
    lost |= set(info.lost)
    assert comm.is_same_on_all_ranks(total if missed == "sum" else np.zeros(1))
    assert comm.mean(comm.rank) == np.mean(comm.members)
    survivors = comm.members
    statistics = ar.statistics()
assert statistics.contributions >= steps, statistics
assert [change.epoch for change in changes] == list(range(1, len(changes) + 1))
assert set(range(WORLD.size)) - set(survivors) == {rank for change in changes for rank in change.lost}
if missed == "sum":
    assert (total[list(survivors)] == 1).all(), total
    assert ((total == 0) | (total == 1)).all(), total
say("members:", *survivors)
say("total:", *([total.sum(), hash(total.tobytes())] if missed == "sum" else []))
say("rounds:", *(f"{number}={hash(info)}" for number, info in sorted(infos.items())))
say("lost:", *sorted(lost), *(["or more"] if dies_early else []))
say("end")
