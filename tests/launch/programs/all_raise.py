"""All ranks raise an exception, one after the other: the same, or that of rank 0 is another."""

import time

import numpy as np
from common import WORLD, arguments, say

import pycollectives as pc

(exceptions,) = arguments()
try:
    with pc.Communicator(WORLD) as comm, comm.partial_allreduce(count=1, dtype="f4", policy=pc.Full()) as ar:
        ar.allreduce(np.ones(1, np.float32), timeout=30)
        time.sleep(0.5 * comm.rank)
        raise ValueError if exceptions == "different" and comm.rank == 0 else KeyError
except (KeyError, ValueError) as error:
    say(type(error).__name__)
