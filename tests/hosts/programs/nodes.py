"""Says on which host a rank is, and what the library makes of it."""

import socket

from mpi4py import MPI

import pycollectives as pc

with pc.Communicator(MPI.COMM_WORLD) as comm:
    where = f"{socket.gethostname()}, nodes {list(comm.nodes)}, ranks per node {comm.ranks_per_node}"
    print(f"rank {comm.rank}: {where}\n", end="", flush=True)
