"""All ranks raise the same exception, one after the other."""

import time

import numpy as np
from common import WORLD, say

import pycollectives as pc

try:
    with pc.Communicator(WORLD) as comm, comm.partial_allreduce(count=1, dtype="f4", policy=pc.Full()) as ar:
        ar.allreduce(np.ones(1, np.float32), timeout=30)
        time.sleep(0.1 * comm.rank)
        raise KeyError("of all")
except KeyError as error:
    say("raised", error)
