"""MPI is initialised with less than MPI_THREAD_MULTIPLE."""

import mpi4py

mpi4py.rc.thread_level = "funneled"

import numpy as np  # noqa: E402
from common import WORLD, arguments, say  # noqa: E402

import pycollectives as pc  # noqa: E402

arguments()
try:
    pc.Communicator(WORLD)
except RuntimeError as error:
    say("refused:", error)
with pc.Communicator(WORLD, progress="caller") as comm:
    ar = comm.partial_allreduce(count=1, dtype="f8", policy=pc.Full())
    say("sum", ar.allreduce(np.ones(1), timeout=30)[0][0])
