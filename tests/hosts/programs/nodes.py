"""Says on which host a rank is, and what the library makes of it."""

import os
import socket

from mpi4py import MPI

import pycollectives as pc

with pc.Communicator(MPI.COMM_WORLD) as comm:
    where = f"{socket.gethostname()}, nodes {list(comm.nodes)}, ranks per node {comm.ranks_per_node}"
    print(f"rank {comm.rank}: {where}\nrank {comm.rank}: session {os.getsid(0)}\n", end="", flush=True)
