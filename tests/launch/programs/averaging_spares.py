"""Ranks die while all average models, and are replaced with the model of a survivor.

averaging_spares.py RANKS SPARES SERVICE OPTION STEPS VICTIM:EPOCH:SECONDS...    SECONDS after VICTIM is in this epoch

OPTION is the first option of the service. If SPARES is 0, new processes take the numbers, and lines have members'
numbers. All elements of a model are equal at any time, or nearly so.
"""

import hashlib
import os
import signal
import sys
import threading
import time

import numpy as np
from common import WORLD, arguments, is_new

import pycollectives as pc

spares, service, option, steps, *deaths = sys.argv[2:] if is_new else arguments()
STEPS = int(steps)
times = {(int(rank), int(epoch)): float(seconds) for rank, epoch, seconds in (death.split(":") for death in deaths)}
replaced_by = {"spares": int(spares)} if int(spares) else {"respawn": True}
ones = np.ones(1 << 12)


class Averaged:
    """A model of the program, which `average` averages."""

    def __init__(self, create, name: str) -> None:
        self.model = np.full(ones.size, float(comm.rank))
        self._averaging = create(self.model, **{name: option})

    def step(self) -> None:
        """Average, and check the number."""
        info = self._averaging.average(self.model)
        if option != "smart":  # whose groups have numbers of their own
            number = info.sequence if option.startswith("static") else info.step
            assert number == step, (info, step)

    def restore(self, model: np.ndarray) -> None:
        """Continue with another model."""
        self.model[:] = model

    def check_end(self) -> None:
        """Check the model at the end: between those of the beginning."""
        assert -1e-9 <= self.model[0] <= comm.size - 1 + 1e-9, self.model


class Hop:
    """Hop's model grows by one in each iteration."""

    def __init__(self, create, name: str) -> None:
        self._hop = create(np.full(ones.size, float(comm.rank)), topology="ring", **{name: option})
        self.model = self._hop.parameters
        self._numbers = self._hop.iterations(STEPS - self._hop.iteration)

    def step(self) -> None:
        """Make the next iteration. Each has another length."""
        number = next(self._numbers)
        assert abs(number - step) <= 1, (number, step)
        self._hop.step(ones)

    def restore(self, model: np.ndarray) -> None:
        """Check the model, which the service has restored."""
        assert (self.model == model).all(), (self.model, model)

    def check_end(self) -> None:
        """Check that each iteration was counted once."""
        assert STEPS - comm.size <= self.model[0] <= STEPS + comm.size, self.model


class Pairs:
    """The model grows by one in each step, and every tenth equalizes all: until then ranks are some steps apart.

    A newcomer's own model would be far from all others.
    """

    apart = 10

    def __init__(self, create, name: str) -> None:
        self.model = np.full(ones.size, 1e9 if comm.epoch else 0.0)
        self._pairs = create(self.model, **{name: option})

    def step(self) -> None:
        """Apply 1."""
        self._pairs.apply(ones)
        self._pairs.read(self.model)
        if (step + 1) % self.apart == 0:
            mean = self._pairs.equalize()
            assert (mean == mean[0]).all(), mean

    def restore(self, model: np.ndarray) -> None:
        """Print the donor's model; the service has restored its own."""
        self.model[:] = model

    def check_end(self) -> None:
        """Check that all have the same model. A newcomer may repeat a step; the dead may have been ahead or behind."""
        self.model = self._pairs.equalize()
        assert comm.is_same_on_all_ranks(self.model)
        assert abs(self.model[0] - STEPS) <= 1 + self.apart * comm.epoch, self.model


class Server:
    """The servers' model grows by the mean of the pushes, which is 1."""

    def __init__(self, create, name: str) -> None:
        self.model = np.zeros(ones.size)
        self._server = create(self.model, servers="node", update=pc.servers.SGD(1.0), **{name: option})

    def step(self) -> None:
        """Push 1, and receive the new model."""
        self._server.push_pull(-ones, self.model)

    def restore(self, model: np.ndarray) -> None:
        """Print the donor's model; the servers have restored theirs."""
        self.model[:] = model

    def check_end(self) -> None:
        """Check that each superstep was counted once. A newcomer's first push may be from an older model."""
        self._server.pull(self.model)
        assert abs(self.model[0] - STEPS) <= 1 + comm.epoch, self.model


KINDS = {
    "partial_reduce": (Averaged, "groups"),
    "neighbor_averaging": (Averaged, "topology"),
    "push_sum": (Averaged, "topology"),
    "hop": (Hop, "mode"),
    "pairwise_averaging": (Pairs, "topology"),
    "parameter_server": (Server, "sync"),
}


def digest(model: np.ndarray) -> str:
    """Return a text that differs for different models."""
    return hashlib.sha256(model.tobytes()).hexdigest()[:16]


with pc.Communicator(WORLD, on_failure="continue", timeout=30.0, **replaced_by) as comm:

    def say(*words: object) -> None:
        """Print one line with the rank's number, or the member's for new processes."""
        print(f"rank {WORLD.rank if int(spares) else comm.rank}:", *words, flush=True)

    def plan_death() -> None:
        """Die as the arguments say, also in a call of MPI."""
        if (seconds := times.pop((comm.rank, comm.epoch), None)) is not None:
            death = threading.Timer(seconds, os.kill, [os.getpid(), signal.SIGKILL])
            death.daemon = True
            death.start()

    step = 0
    comm.on_change(lambda _: plan_death())
    kind, name = KINDS[service]
    averaging = kind(getattr(comm, service), name)

    def provide() -> dict:
        """Return the state, and print which model it has."""
        say("provides", digest(averaging.model))
        return {"step": step, "model": averaging.model}

    def restore(state: dict) -> None:
        """Continue with the state of another rank."""
        global step
        step = state["step"]
        averaging.restore(state["model"])
        say("begins at", step, "with", digest(averaging.model))

    comm.state(provide, restore)
    plan_death()
    while step < STEPS:
        time.sleep(0.005)
        averaging.step()
        # A dead rank's last push may be in the weights of some servers only.
        assert np.ptp(averaging.model) <= (comm.epoch if service == "parameter_server" else 0), averaging.model
        step += 1
    averaging.check_end()
    say("ends with members", *comm.members)
