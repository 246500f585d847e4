"""Measure the bias of asynchronous averaging toward fast ranks, and its correction, on a quadratic.

Rank r minimizes (x - c_r)^2 / 2, where c_r is 200 if the rank is slowed down and 100 otherwise. The common optimum is
the mean of c. Without correction, the models tend to the mean weighted by how often each rank applies its gradients.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

import pycollectives as pc

from .gossip import setting_record, slowdown_record
from .workers import ITEM

if TYPE_CHECKING:
    from mpi4py import MPI

    from .gossip import Setting, Slowdown
    from .output import Record

WEIGHTINGS = ("uniform", "frequency")
SLOW, OTHERS = 200.0, 100.0  # the local optima
LEARNING_RATE = 0.01


@dataclass(frozen=True)
class BiasCell:
    slowdown: Slowdown
    weighting: str
    optimum: float
    model: float  # the mean over ranks, and over the counted time
    steps_of: list[int]  # by rank

    @property
    def off(self) -> float:
        """The relative distance from the optimum."""
        return abs(self.model - self.optimum) / self.optimum


def measure_bias(comm: MPI.Comm, setting: Setting, slowdown: Slowdown, weighting: str) -> BiasCell | None:
    """Measure one cell; collective. None on all ranks but 0."""
    compute = slowdown.seconds(ranks=comm.size, compute=setting.compute)[comm.rank]
    optima = [OTHERS if rank in slowdown.others(comm.size) else SLOW for rank in range(comm.size)]
    with pc.Communicator(comm, ranks_per_node=setting.domain.ranks_per_node) as communicator:
        start = np.full(setting.bytes // ITEM, SLOW, np.float32)
        averaging = communicator.pairwise_averaging(
            start, topology=setting.topology, weighting=weighting, seed=setting.seed
        )
        comm.Barrier()
        models = _train(averaging, optima[comm.rank], compute, setting)
        averaging.leave()
    outcomes = comm.gather((float(np.mean(models)), len(models)))
    if outcomes is None:
        return None
    means, steps = zip(*outcomes, strict=True)
    return BiasCell(slowdown, weighting, float(np.mean(optima)), float(np.mean(means)), list(steps))


def _train(averaging: pc.PairwiseAveraging, optimum: float, compute: float, setting: Setting) -> list[float]:
    """Return the mean of this rank's model at the beginning of each counted step."""
    begin = time.perf_counter()
    first = begin + setting.warmup * setting.compute
    last = first + setting.iterations * setting.compute
    models: list[float] = []
    while (now := time.perf_counter()) < last:
        model = averaging.read()
        if now >= first:
            models.append(float(model.mean()))
        time.sleep(compute)
        averaging.apply(np.float32(LEARNING_RATE) * (np.float32(optimum) - model))
    return models


def bias_record(setting: Setting, cell: BiasCell) -> Record:
    """Return the keys of a cell; the caller adds the origin."""
    return {
        **setting_record(setting, "pairwise_averaging", "bias"),
        **slowdown_record(setting, cell.slowdown),
        "weighting": cell.weighting,
        "learning_rate": LEARNING_RATE,
        "optimum": cell.optimum,
        "model": round(cell.model, 3),
        "off": round(cell.off, 5),
        "steps_of": cell.steps_of,
    }
