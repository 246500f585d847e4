"""The training loop. It knows neither methods (synchronizers/) nor models (models/)."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from mpi4py import MPI

from ..agreement.fingerprint import Fingerprint
from .synchronizers.base import average

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .models.base import Model
    from .optimizers import Optimizer
    from .peers import Peers
    from .synchronizers.base import Synchronizer

__all__ = ["Replica", "Step", "Training"]


@dataclass(frozen=True)
class Step:
    """What one rank did in one step.

    Attributes
    ----------
    number
        From 0 on.
    loss
        Of this rank's batch, before the update.
    compute_s, wait_s
        Seconds in the method, `Synchronizer.combine` and `average`, are wait_s; all others of the step are compute_s:
        the passes, the injected load, the update.
    active, late, missed
        As in `synchronizers.Outcome`.
    """

    number: int
    loss: float
    compute_s: float
    wait_s: float
    active: int
    late: bool
    missed: int


@dataclass(frozen=True)
class Replica:
    """What a rank trains: its model, how gradients change it, and how it meets the other replicas."""

    model: Model
    optimizer: Optimizer
    synchronizer: Synchronizer

    def step(self, number: int, batch: tuple[np.ndarray, ...], work: Callable[[int, float], None]) -> Step:
        """Take one step: the update rule is applied to what the method makes of the gradient.

        eager-SGD, Algorithm 2, lines 4 to 8. Methods that average weights do so after the update (Ripples, 3.1).
        """
        model = self.model
        begin = time.perf_counter()
        loss = model.forward(*batch)
        work(number, begin)  # before a method may communicate in the backward pass
        model.backward()
        computed = time.perf_counter()
        gradient = self.synchronizer.combine(model.gradient)
        if gradient is None:
            raise TypeError(f"{type(self.synchronizer).__name__}.combine: expected an array, got None: no return?")
        combined = time.perf_counter()
        self.optimizer.update(model.weights, gradient, number)
        updated = time.perf_counter()
        self.synchronizer.average(model.weights, number)
        end = time.perf_counter()
        wait = (combined - computed) + (end - updated)
        return Step(number, loss, end - begin - wait, wait, *self.synchronizer.outcome)

    def settle(self, number: int, peers: Peers) -> None:
        """Apply what is owed to this replica, after step `number`; collective, whatever the others' numbers are."""
        self.synchronizer.leave()
        peers.meet()
        owed = self.synchronizer.flush()
        if owed is not None:
            self.optimizer.update(self.model.weights, owed, number)
        self.synchronizer.equalize(self.model.weights)
        self._equalize_state(peers.comm)

    def _equalize_state(self, comm: MPI.Comm) -> None:
        """Average what a model keeps beside its weights, such as running statistics; of counts take the largest.

        What is equal on all ranks stays as it is: a mask, a table of positions.
        """
        state = self.model.state()
        told = comm.allgather({name: Fingerprint.of(array) for name, array in state.items()})
        for name in sorted(state):
            if all(one[name] == told[0][name] for one in told):
                continue
            kind, size = state[name].dtype.kind, state[name].itemsize
            if kind == "f" and size >= 4:  # MPI has no half precision
                average(comm, state[name])
            elif kind in "iu":
                comm.Allreduce(MPI.IN_PLACE, state[name], MPI.MAX)
            else:
                what = f"{type(self.model).__name__}: {name!r}, of {state[name].dtype}"
                raise TypeError(f"{what}, differs between ranks, and is neither averaged nor counted")
        self.model.load_state(state)


@dataclass
class Training:
    """Where a rank stands, which is what a checkpoint keeps beside the replica.

    Attributes
    ----------
    steps
        To take in all.
    settle_every
        Steps between two times that replicas are made equal; None: only at the end.
    number
        The next step.
    settled
        How many of the times that `settle_every` says are over: the same on every rank, while steps may differ.
    """

    steps: int
    settle_every: int | None = None
    number: int = 0
    settled: int = 0

    def run(
        self,
        peers: Peers,
        replica: Replica,
        batch: Callable[[int], tuple[np.ndarray, ...]],
        work: Callable[[int, float], None],
        observers: Sequence[Callable[[Step], None]] = (),
        on_settled: Sequence[Callable[[], None]] = (),
    ) -> bool:
        """Train until all ranks have taken all their steps, or one is stopped; collective. Whether all have.

        Parameters
        ----------
        peers
            All ranks: asked after each step whether training shall end now. Methods whose ranks go at their own pace
            settle then wherever each is: who has settled is waited for by nobody.
        replica
            Trained in place; equal on all ranks afterwards.
        batch
            This rank's arrays for a step.
        work
            Called between the passes with the step and the time of its begin: takes the time that the load says.
        observers
            Called after each step.
        on_settled
            Called, one after the other, whenever all replicas have been made equal, on all ranks.

        Raises
        ------
        RankFailedError
            Another rank has left by an exception. Found out after a step, or where all meet: not by a rank that waits
            within a step, as it does in methods whose ranks wait for all.
        """
        while True:
            self._take_steps(replica, batch, work, peers, observers)
            replica.settle(self.number - 1, peers)
            flags = np.array([peers.is_stopped(), self.number < self.steps])
            peers.comm.Allreduce(MPI.IN_PLACE, flags, MPI.LOR)
            any_stopped, any_unfinished = flags
            if not any_unfinished:
                self.settled = self.steps // (self.settle_every or self.steps)
            elif not any_stopped:
                self.settled += 1
            for act in on_settled:
                act()
                peers.meet()
            if any_stopped or not any_unfinished:
                return not any_unfinished
            replica.synchronizer.rejoin()

    def _take_steps(
        self,
        replica: Replica,
        batch: Callable[[int], tuple[np.ndarray, ...]],
        work: Callable[[int, float], None],
        peers: Peers,
        observers: Sequence[Callable[[Step], None]],
    ) -> None:
        """Until replicas are to be made equal, or training is stopped; who has no steps left takes none."""
        while self.number < self.steps:
            step = replica.step(self.number, batch(self.number), work)
            self.number += 1
            for observe in observers:
                observe(step)
            if replica.synchronizer.agree(peers.is_stopped()):
                return
            if self.settle_every is not None and self.number >= (self.settled + 1) * self.settle_every:
                return
