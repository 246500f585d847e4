"""Rank 1 is stopped (SIGSTOP) in the middle of an update of shared weights; rank 0 comes behind it. A third serves.

Rank 0 is interrupted (Ctrl-C) in its push, and runs into a time limit in its pull. Then rank 1 goes on, and nothing is
lost.
"""

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
from common import WORLD, arguments, say
from gate import Gate

import pycollectives as pc

arguments()
COUNT = 1 << 18
WHO_SERVES = {"servers": [2], "workers": [0, 1]} if WORLD.size == 3 else {"servers": "node"}
opened = Path(os.environ["GATE"])
gate = Gate(np.full(COUNT, -1.0))


def open_later() -> None:
    while not opened.exists():
        time.sleep(0.01)
    gate.open()


with (
    pc.Communicator(WORLD) as comm,
    comm.parameter_server(
        np.zeros(COUNT), sync=pc.servers.ASP(), update=pc.servers.SGD(1.0), nan="accept", name="weights", **WHO_SERVES
    ) as ps,
):
    pids = WORLD.allgather(os.getpid())
    w = np.zeros(COUNT)
    if comm.rank == 1:
        with gate:
            threading.Thread(target=open_later).start()
            ps.push_pull(gate.array, w, timeout=60)
    elif comm.rank == 0:
        while ps.server_statistics().workers[1].pushes == 0:
            time.sleep(0.01)
        os.kill(pids[1], signal.SIGSTOP)
        threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            ps.push_pull(np.full(COUNT, -2.0), w, timeout=60)
        except KeyboardInterrupt:
            say("interrupted after push", ps.clock)
        try:
            ps.pull(w, timeout=0.5)
        except pc.StallError as stall:
            say("stall:", stall)
        os.kill(pids[1], signal.SIGCONT)
        opened.touch()
        ps.pull(w, timeout=60)
        say("weights", w.min(), w.max())
