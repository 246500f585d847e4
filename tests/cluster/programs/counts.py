"""A program that can be stopped: it counts ranks, writes a checkpoint at SIGUSR1 on any rank, and goes on from it.

    counts.py FOLDER STEPS [STOPS]

It takes STEPS steps, and more until it has been stopped STOPS times. At its end, rank 0 writes FOLDER/result.json.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

from mpi4py import MPI

EX_TEMPFAIL = 75
world = MPI.COMM_WORLD
folder, steps, stops = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0
checkpoint = folder / "checkpoint.json"
told = False


def tell(number, frame):
    global told
    told = True


signal.signal(signal.SIGUSR1, tell)
signal.signal(signal.SIGTERM, tell)

state = {"step": 0, "total": 0, "starts": []}
if checkpoint.exists():
    state = json.loads(checkpoint.read_text())
state["starts"].append(state["step"])
if world.rank == 0:
    print(f"counting from {state['step']} on {world.size} ranks", flush=True)

while state["step"] < steps or len(state["starts"]) <= stops:
    time.sleep(0.02)
    state["total"] += world.allreduce(1)
    state["step"] += 1
    if world.allreduce(told, MPI.LOR):
        if world.rank == 0:
            checkpoint.write_text(json.dumps(state))
            print(f"stopped at {state['step']}", flush=True)
        for number in (signal.SIGUSR1, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # one may yet come, when Python has let go of its handlers
        world.Barrier()
        sys.exit(EX_TEMPFAIL)

hosts = sorted(set(world.allgather(MPI.Get_processor_name())))
gpus = world.allgather(os.environ.get("CUDA_VISIBLE_DEVICES"))
if world.rank == 0:
    variables = {name: value for name, value in os.environ.items() if name.startswith(("MPICH_", "OMP_NUM_", "CRAY_"))}
    found = {"ranks": world.size, "hosts": hosts, "gpus": gpus, "environment": variables}
    (folder / "result.json").write_text(json.dumps({**state, **found}))
