"""Train the model of `survive --program optimizer` as a replica of torchft.

torchft_worker.py NUMBER TIMEOUT LOG
"""

import os
import socket
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
from torch import distributed
from torchft import Manager, Optimizer, ProcessGroupGloo

COUNT = 1024  # as in survivors.py
number, timeout, log = int(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3])
with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK="0", WORLD_SIZE="1")
store = distributed.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
torch.set_num_threads(1)
model = torch.nn.Linear(COUNT, 1, bias=False)
example = torch.ones(COUNT)


def load(state: dict) -> None:
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])


manager = Manager(
    pg=ProcessGroupGloo(timeout=timedelta(seconds=timeout)),
    min_replica_size=1,
    load_state_dict=load,
    state_dict=lambda: {"model": model.state_dict(), "optimizer": optimizer.state_dict()},
    replica_id=f"r{number}_",
    timeout=timedelta(seconds=60),
    quorum_timeout=timedelta(seconds=120),
    hostname="127.0.0.1",
)
optimizer = Optimizer(manager, torch.optim.SGD(model.parameters(), lr=0.1 / COUNT))
with log.open("a", buffering=1) as rows:
    while True:
        time.sleep(0.001)
        optimizer.zero_grad()
        (model(example) - 1).square().sum().backward()
        work = manager.allreduce(model.weight.grad)
        if work is not None:
            work.wait()
        before = manager.current_step()
        optimizer.step()
        if manager.current_step() > before:
            print(time.monotonic(), manager.current_step(), manager.num_participants(), file=rows)
