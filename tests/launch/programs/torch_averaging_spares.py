"""Ranks die while a DecentralizedOptimizer trains, and are replaced.

torch_averaging_spares.py RANKS SPARES METHOD CALLS VICTIM:CALL:MOMENT...

VICTIM dies after so many seconds of this call, or in it: "mean" when it has a mean, "join" when it makes a collective.
SPARES take the numbers of the dead; if 0, new processes do, and lines have members' numbers. Each twentieth call is a
flush, and all others are steps.
"""

import hashlib
import os
import signal
import sys
import threading
import time

import numpy as np
import torch
from common import WORLD, arguments, is_new

import pycollectives as pc
from pycollectives.torch import DecentralizedOptimizer

spares, method, calls, *deaths = sys.argv[2:] if is_new else arguments()
moments = {(int(rank), int(call)): moment for rank, call, moment in (death.split(":") for death in deaths)}
replaced_by = {"spares": int(spares)} if int(spares) else {"respawn": True}
torch.set_num_threads(1)
truth = torch.tensor([[1.0, -2.0, 3.0, -4.0]])

with pc.Communicator(WORLD, on_failure="continue", timeout=30.0, **replaced_by) as comm:

    def say(*words: object) -> None:
        """Print one line with the rank's number, or the member's for new processes."""
        print(f"rank {WORLD.rank if int(spares) else comm.rank}:", *words, flush=True)

    def plan_death() -> None:
        """Die as the arguments say, also in a call of MPI."""
        moment = None if has_joined else moments.get((comm.rank, done))
        exchange = optimizer._exchange
        if moment == "mean":
            exchange._mean.rounds.flush = die_later  # when the others wait there
        elif moment == "join":
            exchange.join = die
        elif moment is not None:
            death = threading.Timer(float(moment), die)
            death.daemon = True
            death.start()

    def die(**_: object) -> None:
        """End at once."""
        os.kill(os.getpid(), signal.SIGKILL)

    def die_later(**_: object) -> None:
        """End when the others have the mean too."""
        time.sleep(0.2)
        die()

    model = torch.nn.Linear(4, 1, bias=False)
    inner = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.5)
    optimizer = DecentralizedOptimizer(inner, comm, method)
    done = 0

    def state() -> list:
        """Return the parameters and the momentum, which the library restores."""
        momentum = [each["momentum_buffer"] for each in inner.state.values()]
        return [each.detach().numpy().tobytes() for each in (model.weight, *momentum)]

    def provide() -> int:
        """Return the number of completed calls, and print which state belongs to it."""
        say("provides", hashlib.sha256(b"".join(state())).hexdigest()[:16])
        return done

    def restore(number: int) -> None:
        """Continue with the call of another rank."""
        global done
        done = number
        say("begins at", done, "with", hashlib.sha256(b"".join(state())).hexdigest()[:16])

    another = comm.partial_allreduce(np.zeros(1))  # after a flush, it is between those of the optimizer
    comm.state(provide, restore)
    has_joined = comm.epoch > 0
    while done < int(calls):
        plan_death()
        if done % 20 == 19:
            optimizer.flush()
        else:
            features = torch.randn(16, 4)
            optimizer.zero_grad()
            noise = 0.3 * torch.randn(16, 1)  # so that the ranks' models differ
            ((model(features) - features @ truth.T - noise) ** 2).mean().backward()
            optimizer.step()
        done += 1
    plan_death()
    optimizer.finish()
    weights = model.weight.detach().numpy()
    another.leave()
    same = np.abs(weights - comm.mean(weights)).max() < 1e-5  # each rank adds the means in its own order
    near = np.abs(weights - truth.numpy()).max() < 0.5
    say("ends with members", *comm.members, "same", same, "near", near)
