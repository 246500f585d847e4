"""A rank is killed by SIGKILL whose model is on a simulated device; the others say what they are told, when, and go on.

killed_averaging_on_device.py RANKS VICTIM SEED: at some moment of averages without a rest, of a model of two segments.
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
ones = np.ones((1 << 20) + 1, np.float32)

try:
    with pc.Communicator(WORLD, ranks_per_node=[1, "all"][seed % 2]) as comm:
        x = OnDevice(machine, ones)
        model = comm.pairwise_averaging(x, topology="complete", rate=1e6)
        if comm.rank == victim:
            die_later(random.Random(seed).uniform(0.2, 0.4))
        told = []
        begin = time.monotonic()
        while time.monotonic() < begin + 20 and not told:
            try:
                model.apply(x)
                model.read()
            except pc.RankFailedError as error:
                told = [time.monotonic() - time_of_death(), error]
        say(f"{told[0]:.2f} s")
        say(f"{told[1]}")
        model.apply(x)
        values = model.read().to_host()
        assert (values >= 1).all(), values.min()
        raise told[1]
except pc.RankFailedError:
    pass
say("end")
