"""A rank is killed by SIGKILL while the others wait for it in `equalize`; each says how often it is told.

killed_in_equalize.py RANKS VICTIM
"""

import time

import numpy as np
from common import WORLD, arguments, say
from death import die_later

import pycollectives as pc

(victim,) = map(int, arguments())
told = 0


def count(call):
    global told
    try:
        call()
    except pc.RankFailedError as error:
        told += 1
        say(f"{list(error.ranks)}")


try:
    with pc.Communicator(WORLD) as comm:
        model = comm.pairwise_averaging(np.zeros(1000, np.float32), topology="complete")
        comm.mean(0.0)  # all have made it
        if comm.rank == victim:
            die_later(0.3)
            time.sleep(30)
        count(model.equalize)
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            count(model.read)
            count(lambda: model.apply(np.ones(1000, np.float32)))
            time.sleep(0.02)
        say(f"told {told}")
        model.leave()
except pc.RankFailedError:
    say("end")
