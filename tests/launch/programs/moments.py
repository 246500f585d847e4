"""Ranks die at one moment of a program of `bench survive`, and the others continue without a wrong value.

moments.py RANKS PROGRAM MOMENT APART STEPS SEED VICTIM...: the victims die within APART seconds (0: at once) after the
begin of a MOMENT: "creation" of the collective; some "step"; its "end", which flushes and leaves it; "close" of the
communicator.
"""

import random
import time

from common import WORLD, arguments, say
from death import die_later
from pycollectives_bench.common.policies import PolicyName
from pycollectives_bench.common.survivors import make_program

import pycollectives as pc

name, moment, apart, *numbers = arguments()
steps, seed, *victims = map(int, numbers)
APART_S = float(apart)
source = random.Random(f"{seed} {WORLD.rank}")
policy = PolicyName.parse(random.Random(seed).choice(["solo", "majority", "full"]))


def begin(what: str, after: float = 0.0) -> None:
    """Have the victims die from `after` seconds on, if this is the moment."""
    if what == moment and comm.rank in victims:
        die_later(after + source.uniform(0, APART_S))


comm = pc.Communicator(WORLD, on_failure="continue", timeout=30)
WORLD.Barrier()  # a death in the constructor is an error
begin("creation")
program = make_program(name, comm, policy)
begin("step", after=0.03)
for _ in range(steps):
    time.sleep(source.uniform(0, 2e-3))
    program.step()
begin("end")
program.end()
if moment != "close":
    time.sleep(APART_S + 0.5)  # longer than the victims live
    comm.mean(1.0)
    say("members:", *comm.members)
else:
    WORLD.Barrier()
begin("close")
comm.close()
say("end")
