"""Train the model of `survive --program optimizer` with checkpoints.

restart_worker.py ATTEMPT FOLDER
"""

import os
import sys
import time
from pathlib import Path

import torch
from mpi4py import MPI

import pycollectives as pc
from pycollectives.torch import EagerOptimizer

COUNT = 1024  # as in survivors.py
CHECKPOINT_S = 1.0
attempt, folder = sys.argv[1], Path(sys.argv[2])
file = folder / "checkpoint.pt"
torch.set_num_threads(1)
model = torch.nn.Linear(COUNT, 1, bias=False)
example = torch.ones(COUNT)
comm = pc.Communicator(MPI.COMM_WORLD)
state = torch.load(file) if file.exists() else {"step": 0, "model": model.state_dict()}
model.load_state_dict(state["model"])
optimizer = EagerOptimizer(torch.optim.SGD(model.parameters(), lr=0.1 / COUNT), comm, policy="full")
step, saved = state["step"], time.monotonic()
(folder / f"{comm.rank}.{attempt}.pid").write_text(str(os.getpid()))
with (folder / f"{comm.rank}.{attempt}.log").open("a", buffering=1) as rows:
    while True:
        time.sleep(0.001)
        optimizer.zero_grad()
        (model(example) - 1).square().sum().backward()
        optimizer.step()
        step += 1
        print(time.monotonic(), step, comm.size, file=rows)
        if comm.rank == 0 and time.monotonic() - saved > CHECKPOINT_S:
            torch.save({"step": step, "model": model.state_dict()}, file.with_suffix(".new"))
            file.with_suffix(".new").replace(file)
            saved = time.monotonic()
