"""Ranks die while an EagerOptimizer trains, and are replaced. Weights count the steps of each rank.

torch_spares.py RANKS SPARES POLICY STEPS OPTIONS VICTIM:SECONDS[@EPOCH]...    SECONDS after so many changes

SPARES take the numbers of the dead; if 0, new processes do, whose lines have the numbers from RANKS on.
"""

import json
import signal
import sys

import numpy as np
import torch
from common import WORLD, arguments, is_new

import pycollectives as pc
from pycollectives.torch import EagerOptimizer

spares, policy, steps, options, *deaths = sys.argv[2:] if is_new else arguments()
times = {int(rank): time for rank, _, time in (death.partition(":") for death in deaths)}
seconds, _, epoch = times.get(-1 if is_new else WORLD.rank, "-1").partition("@")
signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGKILL))
torch.set_num_threads(1)


class Model(torch.nn.Module):
    """Three parameters, whose gradients are 1 for this rank and 0 for the others, and a BatchNorm."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.counts = torch.nn.ParameterList(torch.zeros(size, dtype=torch.float64) for _ in range(3))
        self.norm = torch.nn.BatchNorm1d(4)

    def forward(self, features: torch.Tensor, rank: int) -> torch.Tensor:
        """Return the loss."""
        return -sum(count[rank] for count in self.counts) + self.norm(features).square().mean() * 1e-3


replaced_by = {"spares": int(spares)} if int(spares) else {"respawn": True}
with pc.Communicator(WORLD, on_failure="continue", timeout=30.0, **replaced_by) as comm:
    model = Model(comm.size)
    groups = [{"params": model.counts.parameters()}, {"params": model.norm.parameters(), "momentum": 0.9}]
    inner = torch.optim.SGD(groups, lr=comm.size)
    schedule = torch.optim.lr_scheduler.LambdaLR(inner, [lambda _: 1.0, lambda step: 1e-3 / (1 + step)])
    optimizer = EagerOptimizer(
        inner, comm, policy, model=model, schedulers=[schedule], bucket_bytes=8, **json.loads(options)
    )
    step = 0

    def restore(number: int) -> None:
        """Continue at the step of another rank."""
        global step
        step = number

    comm.state(lambda: step, restore)
    begun = step
    while step < int(steps):
        if float(seconds) > 0 and comm.epoch >= int(epoch or 0):
            signal.setitimer(signal.ITIMER_REAL, float(seconds))
            seconds = "-1"
        optimizer.zero_grad()
        model(torch.randn(16, 4), comm.rank).backward()
        optimizer.step()
        schedule.step()
        step += 1
    optimizer.finish()
    everything = torch.cat([tensor.detach().double().reshape(-1) for tensor in model.state_dict().values()])
    rates = np.array([group["lr"] for group in optimizer.param_groups])
    same = comm.is_same_on_all_ranks(everything.numpy()) and comm.is_same_on_all_ranks(rates)
    uniform = all(torch.equal(count, model.counts[0]) for count in model.counts)
    least = torch.stack([*model.counts]).amin(0)  # of the three buckets
    number = comm.size + comm.rank if is_new else WORLD.rank
    print(f"rank {number}: begun at", begun, "same", same, "uniform", uniform, *least.tolist(), flush=True)
