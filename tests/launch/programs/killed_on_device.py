"""A rank is killed by SIGKILL whose arrays are on a simulated device; the others say what they are told, and when.

killed_on_device.py RANKS VICTIM SEED: at some moment of rounds of long data, in which a rank copies, reduces or waits.
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
    with pc.Communicator(WORLD) as comm:
        x = OnDevice(machine, np.ones(1 << 18, np.float32))
        ar = comm.partial_allreduce(x, policy=pc.Full() if seed % 2 else pc.Majority(seed), late="replace")
        ar.allreduce(x, timeout=30)
        if comm.rank == victim:
            die_later(random.Random(seed).uniform(0.2, 0.4))
        begin = time.monotonic()
        while time.monotonic() < begin + 20:
            ar.allreduce(x, timeout=15)
except pc.RankFailedError as error:
    say(f"{time.monotonic() - time_of_death():.2f} s")
    say(f"{error}")
say("end")
