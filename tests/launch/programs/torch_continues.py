"""Ranks die while an optimizer trains; the others train on, and their models are equal at the end.

torch_continues.py RANKS METHOD SEED VICTIM...: METHOD is "eager-sgd", or one of DecentralizedOptimizer
"""

import random
import time

import numpy as np
import torch
from common import WORLD, arguments, say
from death import die_later

import pycollectives as pc
from pycollectives.torch import DecentralizedOptimizer, EagerOptimizer

method, *numbers = arguments()
seed, *victims = map(int, numbers)
source = random.Random(f"{seed} {WORLD.rank}")
torch.manual_seed(WORLD.rank)
truth = torch.tensor([[1.0, -2.0, 3.0, -4.0]])

with pc.Communicator(WORLD, on_failure="continue", timeout=30) as comm:
    WORLD.Barrier()  # a death in the constructor is an error
    model = torch.nn.Linear(4, 1, bias=False)
    if comm.rank in victims:
        die_later(source.uniform(0.0, 0.3) + 0.4 * victims.index(comm.rank))
    inner = torch.optim.SGD(model.parameters(), lr=0.05)
    if method == "eager-sgd":
        optimizer = EagerOptimizer(inner, comm, policy="majority")
    else:
        optimizer = DecentralizedOptimizer(inner, comm, method)
    begin, has_time = time.monotonic(), True
    while has_time:
        for _ in range(50):
            features = torch.randn(16, 4)
            optimizer.zero_grad()
            noise = torch.randn(16, 1)  # so that gradients stay large
            ((model(features) - features @ truth.T - noise) ** 2).mean().backward()
            optimizer.step()
            time.sleep(source.uniform(0, 2e-3))
        optimizer.flush()
        has_time = comm.mean(time.monotonic() - begin) < 0.4 * len(victims) + 0.5
    loss = optimizer.average((model.weight.detach() - truth).abs().max().item())
    optimizer.finish()
    weights = model.weight.detach().numpy()
    same = np.abs(weights - comm.mean(weights)).max() < 1e-5  # each rank adds the means in its own order
    say("members:", *comm.members)
    say("loss:", f"{loss:.3f}", "same:", same)
say("end")
