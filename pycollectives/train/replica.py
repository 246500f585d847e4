"""A replica, which one rank trains: its steps, and how it becomes equal to the other replicas."""

from __future__ import annotations

import operator
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mpi4py import MPI

from ..agreement.fingerprint import Fingerprint
from .optimizers import Timed
from .reductions import average, check_alive, gathered

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from .control import ControlChannel
    from .models.base import Model
    from .optimizers import Optimizer
    from .synchronizers.base import Synchronizer


@dataclass(frozen=True)
class Step:
    """The record of one step of a rank; `active`, `late` and `missed` are as in `synchronizers.Outcome`."""

    number: int  # steps that the method skips have no record
    loss: float  # of this rank's batch, before the update
    compute_s: float  # the passes, the injected load, the update rule
    wait_s: float  # in the method, `Synchronizer.begin` and `update`, without the update rule
    active: int
    late: bool
    missed: int


@dataclass(frozen=True)
class Replica:
    """One rank's model, its update rule, and its synchronization with the other replicas."""

    model: Model
    optimizer: Optimizer
    synchronizer: Synchronizer

    def begin(self, number: int) -> tuple[int, float]:
        """Begin step `number`; return the number of the step to take, and the seconds that the method waited."""
        begin = time.perf_counter()
        answer = self.synchronizer.begin(self.model.weights, number)
        try:
            begun = operator.index(answer)
        except TypeError:
            raise TypeError(
                f"{self._method}.begin: expected the number of a step, got {answer!r}: is a return missing?"
            ) from None
        if begun < number:
            raise ValueError(f"{self._method}.begin: expected step {number} or a later one, got {begun}")
        return begun, time.perf_counter() - begin

    def step(
        self,
        number: int,
        batch: tuple[np.ndarray, ...],
        work: Callable[[int, float], None],
        waited_s: float = 0.0,
        on_update: Callable[[], None] = lambda: None,
    ) -> Step:
        """Take the step after `begin`; eager-SGD, Algorithm 2, lines 4 to 8."""
        model, optimizer = self.model, Timed(self.optimizer, on_update)
        begin = time.perf_counter()
        loss = model.forward(*batch)
        work(number, begin)  # before a method may communicate in the backward pass
        model.backward()
        computed = time.perf_counter()
        self.synchronizer.update(model, optimizer, number)
        waited = time.perf_counter() - computed - optimizer.seconds
        computing = computed - begin + optimizer.seconds
        return Step(number, loss, computing, waited_s + waited, *self.synchronizer.outcome)

    def settle(self, number: int, control: ControlChannel) -> None:
        """Apply outstanding gradients and make replicas equal; collective. Ranks' last step, `number`, may differ."""
        self.synchronizer.leave()
        control.barrier()
        self.synchronizer.flush(self.model, self.optimizer, number)
        self.synchronizer.equalize(self.model.weights)
        self._equalize_state(control.comm)

    def _equalize_state(self, comm: MPI.Comm) -> None:
        """Average the model's state besides its weights, such as running statistics; set counts to the largest one.

        Arrays that are equal on all ranks, such as a mask or a table of positions, do not change.
        """
        state = self.model.state()
        replies = gathered(comm, {name: Fingerprint.of(array) for name, array in state.items()})
        for name in sorted(state):
            if all(one[name] == replies[0][name] for one in replies):
                continue
            kind, size = state[name].dtype.kind, state[name].itemsize
            if kind == "f" and size >= 4:  # MPI has no half precision
                average(comm, state[name])
            elif kind in "iu":
                comm.Allreduce(MPI.IN_PLACE, state[name], MPI.MAX)
            else:
                what = f"{type(self.model).__name__}: {name!r}, of {state[name].dtype}"
                raise TypeError(f"{what}, differs between ranks: expected integers, or floats of at least 32 bits")
        check_alive(comm)
        self.model.load_state(state)

    @property
    def _method(self) -> str:
        return type(self.synchronizer).__name__
