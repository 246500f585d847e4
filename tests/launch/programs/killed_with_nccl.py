"""A rank is killed by SIGKILL while NCCL reduces; the others say what they are told, and what they keep of NCCL.

killed_with_nccl.py RANKS KIND VICTIM SEED: in rounds ("allreduce") or groups ("groups"). Simulated driver and NCCL.
"""

import contextlib
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

kind, (victim, seed) = arguments()[0], map(int, arguments()[1:])
machine = Simulated(WORLD.rank)
machine.driver.use()
machine.driver.use_nccl()
x = OnDevice(machine, np.ones(1 << 16, np.float32))


@contextlib.contextmanager
def calls(comm):
    """What is called again and again."""
    if kind == "allreduce":
        ar = comm.partial_allreduce(like=x, policy=pc.Full(), algorithm="nccl")
        yield lambda: ar.allreduce(x, timeout=15)
    else:
        pr = comm.partial_reduce(like=x, groups=pc.RandomGroups(3, seed=seed), algorithm="nccl")
        yield lambda: pr.sync(x, timeout=15)


try:
    with pc.Communicator(WORLD) as comm, calls(comm) as call:
        call()
        if comm.rank == victim:
            die_later(random.Random(seed).uniform(0.2, 0.4))
        begin = time.monotonic()
        while time.monotonic() < begin + 20:
            call()
except pc.RankFailedError as error:
    say(f"{time.monotonic() - time_of_death():.2f} s")
    say(f"{error}")
    until = time.monotonic() + 10
    while machine.driver.communicators and time.monotonic() < until:
        time.sleep(0.01)
    say(f"communicators: {machine.driver.communicators}")
say("end")
