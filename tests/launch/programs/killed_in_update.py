"""Rank 1 is killed by SIGKILL in the middle of an update of shared weights; rank 0 comes behind it, and rank 2 reads.

killed_in_update.py RANKS SERVERS: "node", or "2", which is the rank that serves. The others say what they are told, and
when.
"""

import os
import time

import numpy as np
from common import WORLD, arguments, say
from death import kill_other, time_of_death
from gate import Gate

import pycollectives as pc

(servers,) = arguments()
COUNT = 1 << 18
gate = Gate(np.full(COUNT, -1.0))
where = {"servers": "node"} if servers == "node" else {"servers": [int(servers)], "workers": [0, 1]}

try:
    with pc.Communicator(WORLD) as comm:
        ps = comm.parameter_server(
            np.zeros(COUNT), sync=pc.servers.ASP(), update=pc.servers.SGD(1.0), nan="accept", **where
        )
        pids = WORLD.allgather(os.getpid())
        w = np.zeros(COUNT)
        if comm.rank == 1:
            with gate:
                ps.push_pull(gate.array, w, timeout=60)
        while ps.server_statistics(timeout=15).workers[1].pushes == 0:
            time.sleep(0.01)
        if comm.rank == 0:
            kill_other(pids[1])
            ps.push_pull(np.full(COUNT, -2.0), w, timeout=15)
        while True:
            ps.pull(w, timeout=15)
except pc.RankFailedError as error:
    say(f"{time.monotonic() - time_of_death():.2f} s")
    say(f"{error}")
say("end")
