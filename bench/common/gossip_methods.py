"""Workers that compute and apply deltas, and the methods that make their models agree."""

from __future__ import annotations

import contextlib
import gc
import time
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
from mpi4py import MPI

import pycollectives as pc

from .errors import require_none
from .gossip import Final, Outcome, audit_models, pattern, step_of
from .timing import SleepingBarrier, Timeline, Window
from .workers import ITEM

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from .gossip import Setting

    Model = NDArray[np.float32]


class Method(Protocol):
    """Every rank opens a method, applies a delta per iteration, and closes it.

    An iteration reads the model, computes and applies. `open` reads for the first iteration; `apply` applies, and reads
    for the next one. An iteration therefore consists of computing and `apply`.
    """

    equal: bool
    """Whether all models are the same in the end."""

    def open(self) -> None:
        """Collective."""

    def apply(self, over: bool) -> bool:
        """Apply the delta; return whether it was this rank's last. `over`: whether this rank's time is over."""

    def counts(self) -> dict[str, float]:
        """Return the number of pairwise averages that were begun, and `staleness`; empty for other methods."""

    def leave(self) -> None:
        """Leave, so that no rank waits for this one; return at once."""

    def close(self) -> tuple[Model, float]:
        """Return this rank's final model and its weight in the mean; collective."""


class _Method:
    """One rank's model, and the delta of its iterations."""

    equal = True

    def __init__(self, comm: MPI.Comm, setting: Setting) -> None:
        self._comm = comm
        self._setting = setting
        self._topology = pc.topology.by_name(setting.topology, comm.size)
        self._delta = pattern(setting.bytes // ITEM)
        self._delta *= np.float32(step_of(comm.rank))
        self._model = np.zeros_like(self._delta)
        self._open = contextlib.ExitStack()

    def counts(self) -> dict[str, float]:
        return {}

    def leave(self) -> None:
        pass

    def _communicator(self) -> pc.Communicator:
        return self._open.enter_context(pc.Communicator(self._comm, ranks_per_node=self._setting.domain.ranks_per_node))


class MpiAllreduce(_Method):
    """MPI_Allreduce of the gradient in place, and a division.

    All ranks must end after the same iteration. One more number therefore goes with the gradient: the number of workers
    whose time is over.
    """

    def __init__(self, comm: MPI.Comm, setting: Setting) -> None:
        super().__init__(comm, setting)
        self._message = np.zeros(self._model.size + 1, np.float32)
        self._buffer = [self._message, self._message.size, MPI.FLOAT]

    def open(self) -> None:
        pass

    def apply(self, over: bool) -> bool:
        self._message[:-1] = self._delta
        self._message[-1] = over
        self._comm.Allreduce(MPI.IN_PLACE, self._buffer)
        return self._take(self._message)

    def close(self) -> tuple[Model, float]:
        return self._model, 1.0

    def _take(self, total: Model) -> bool:
        np.divide(total, np.float32(self._comm.size), out=self._message)
        self._model += self._message[:-1]
        return bool(self._message[-1] > 0)


class FullAllreduce(MpiAllreduce):
    """The same with our partial allreduce that waits for all ranks."""

    def open(self) -> None:
        rounds = self._communicator().partial_allreduce(self._message, op=MPI.SUM, policy=pc.Full())
        self._rounds = self._open.enter_context(rounds)

    def apply(self, over: bool) -> bool:
        self._message[:-1] = self._delta
        self._message[-1] = over
        total, _ = self._rounds.allreduce(self._message)
        return self._take(total)

    def close(self) -> tuple[Model, float]:
        self._open.close()
        return self._model, 1.0


class DPsgd(_Method):
    """Models are averaged with the neighbors' while the gradient is computed (D-PSGD, Algorithm 1)."""

    equal = False

    def open(self) -> None:
        comm = self._communicator()
        self._averaging = comm.neighbor_averaging(self._model, topology=self._topology)
        self._step = self._averaging.start(self._model)

    def apply(self, over: bool) -> bool:
        self._step.wait(out=self._model)
        self._model += self._delta
        if not over:
            self._step = self._averaging.start(self._model)
        return over

    def leave(self) -> None:
        self._averaging.leave()

    def close(self) -> tuple[Model, float]:
        self._open.close()
        return self._model, 1.0


class Sgp(_Method):
    """Shares of a model are sent to out-neighbors after each gradient step (SGP, Algorithm 1)."""

    equal = False

    def open(self) -> None:
        comm = self._communicator()
        self._push_sum = comm.push_sum(self._model, topology=self._topology)

    def apply(self, over: bool) -> bool:
        self._model += self._delta
        self._push_sum.average(self._model)
        return over

    def leave(self) -> None:
        self._push_sum.leave()

    def close(self) -> tuple[Model, float]:
        self._push_sum.final(self._model)
        weight = self._push_sum.weight
        self._open.close()
        return self._model, weight


class AdPsgd(_Method):
    """Models are averaged in pairs in the background (AD-PSGD, Algorithm 1)."""

    acceleration: Literal["a2cid2"] | None = None

    def open(self) -> None:
        self._averaging = self._communicator().pairwise_averaging(
            self._model,
            topology=self._topology,
            seed=self._setting.seed,
            acceleration=self.acceleration,
        )
        self._averaging.read(self._model)

    def apply(self, over: bool) -> bool:
        self._averaging.apply(self._delta)
        if not over:
            self._averaging.read(self._model)
        return over

    def counts(self) -> dict[str, float]:
        statistics = self._averaging.statistics()
        return {
            "exchanges": statistics.begun,
            "between_nodes": statistics.begun_between_nodes,
            "staleness": statistics.staleness_mean,
        }

    def close(self) -> tuple[Model, float]:
        self._averaging.equalize()
        self._averaging.read(self._model)
        self._averaging.leave()
        self._open.close()
        return self._model, 1.0


class A2cid2(AdPsgd):
    """The same with momentum between averages."""

    acceleration: Literal["a2cid2"] | None = "a2cid2"


MAKERS: dict[str, Callable[[MPI.Comm, Setting], Method]] = {
    "allreduce": MpiAllreduce,
    "full": FullAllreduce,
    "d-psgd": DPsgd,
    "sgp": Sgp,
    "ad-psgd": AdPsgd,
    "a2cid2": A2cid2,
}


def run_method(comm: MPI.Comm, method: Method, *, compute: float, window: Window) -> list[Outcome] | None:
    """Run a method; collective. None on all ranks but 0. `compute`: seconds that this rank sleeps per iteration."""
    barrier = SleepingBarrier(comm)
    begins: list[float] = []
    ends: list[float] = []
    clock, sleep = time.perf_counter, time.sleep
    method.open()
    gc.collect()
    gc.disable()
    try:
        barrier.wait()
        start = clock()
        last = False
        while not last:
            sleep(compute)
            begin = clock() - start
            last = method.apply(begin >= window.end)
            begins.append(begin)
            ends.append(clock() - start)
    finally:
        gc.enable()
    counts = method.counts()
    method.leave()
    barrier.wait()
    model, weight = method.close()
    outcome = Outcome(
        Timeline(np.array(begins), np.array(ends)),
        Final.of(model, len(ends), weight=weight),
        exchanges_per_s=counts["exchanges"] / ends[-1] if counts else None,
        between_nodes_per_s=counts["between_nodes"] / ends[-1] if counts else None,
        staleness=counts.get("staleness"),
    )
    return comm.gather(outcome)


def verify(comm: MPI.Comm, name: str, outcomes: Sequence[Outcome] | None, *, equal: bool) -> None:
    """Raise RunError on every rank if an applied delta was lost or counted twice; collective."""
    require_none(comm, name, outcomes and audit_models([outcome.final for outcome in outcomes], equal=equal))
