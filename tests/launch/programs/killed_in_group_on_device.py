"""A rank is killed by SIGKILL in groups of weights on a simulated device; the others say what they are told, and when.

killed_in_group_on_device.py RANKS VICTIM SEED: at some moment, in which a rank copies, reduces or waits.
"""

import random
import sys
import time
from pathlib import Path

import numpy as np
from common import WORLD, arguments, say
from death import die_later, time_of_death

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))
from device_programs import OnDevice
from devices import Simulated

import pycollectives as pc

victim, seed = map(int, arguments())
machine = Simulated(WORLD.rank)
machine.driver.use()

try:
    with pc.Communicator(WORLD, ranks_per_node=("all", 2, 1)[seed % 3]) as comm:
        x = OnDevice(machine, np.ones(1 << 18, np.float32))
        groups = pc.groups.RandomGroups(min(3, comm.size), seed=seed) if seed % 2 else pc.groups.StaticGroups(comm.size)
        pr = comm.partial_reduce(x, groups=groups)
        pr.average(x, timeout=30)
        if comm.rank == victim:
            die_later(random.Random(seed).uniform(0.2, 0.4))
        begin = time.monotonic()
        while time.monotonic() < begin + 20:
            pr.average(x, timeout=15)
except pc.RankFailedError as error:
    say(f"{time.monotonic() - time_of_death():.2f} s")
    say(f"{error}")
say("end")
