"""A rank is killed by SIGKILL in a phase of its calls; the others say what they are told, and when.

killed.py RANKS PHASE VICTIM SEED: "before" a deposit, "asleep" in a call that waits for a rank that computes, or
"working", at some moment of rounds of long data, in which it copies, reduces for itself or helps, or "solo", at some
moment of short calls that wait for nobody.
"""

import random
import time

import numpy as np
from common import WORLD, arguments, say
from death import die, die_later, time_of_death

import pycollectives as pc

phase, *numbers = arguments()
victim, seed = map(int, numbers)
count = 1 << 21 if phase == "working" else 4
sleeper = (victim + 1) % WORLD.size


try:
    with pc.Communicator(WORLD) as comm:
        policy = pc.Full() if phase == "asleep" or seed % 2 else pc.Majority(seed)
        if phase == "solo":
            policy = pc.Solo()
        ar = comm.partial_allreduce(count=count, dtype="f4", policy=policy, late="replace", missed="latest")
        contribution = np.ones(count, np.float32)
        ar.allreduce(contribution, timeout=30)
        begin = time.monotonic()
        if comm.rank == victim and phase != "before":
            die_later(0.3 if phase == "asleep" else random.Random(seed).uniform(0.2, 0.4))
        if comm.rank == victim and phase == "before":
            time.sleep(0.1)
            die()
        if comm.rank == sleeper and phase == "asleep":
            time.sleep(1.0)
        while time.monotonic() < begin + 20:
            result, info = ar.allreduce(contribution, timeout=15)
            if not (result == len(info.contributors)).all():
                say(f"wrong result of {info}: {np.unique(result)}")
except pc.RankFailedError as error:
    called = begin + 1.0 if comm.rank == sleeper and phase == "asleep" else time_of_death()
    say(f"{time.monotonic() - max(called, time_of_death()):.2f} s")
    say(f"{error}")
say("end")
