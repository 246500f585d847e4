"""Times collectives in turns: blocks of the one and of the other under the same delays, so that noise meets both."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .procedure import Procedure
    from .subjects import Subject

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Samples:
    """(ranks, iterations) seconds, on rank 0; `arrivals` count from an instant that all ranks share."""

    arrivals: Floats
    latencies: Floats


def measure(comm: MPI.Comm, subjects: Sequence[Subject], procedure: Procedure) -> list[Samples]:
    """Collective. One Samples per subject, meaningful on rank 0.

    Clocks of several machines do not agree, so there an arrival counts from the end of the rank's own barrier.
    """
    one_machine = _on_one_machine(comm)
    rows: list[list[Floats]] = [[] for _ in subjects]
    first = 0
    for block, counted in enumerate(procedure.blocks()):
        delays = procedure.delays[first : first + procedure.warmup + counted]
        first += len(delays)
        turn = list(zip(subjects, rows, strict=True))
        for subject, taken in turn if block % 2 == 0 else reversed(turn):
            times = _run_block(comm.rank, subject, block, delays, procedure)
            taken.append(times[procedure.warmup :])
    return [_gather(comm, np.concatenate(taken), one_machine) for taken in rows]


def _run_block(rank: int, subject: Subject, block: int, delays: Floats, procedure: Procedure) -> Floats:
    """(calls, 3) seconds: end of the barrier, arrival, latency."""
    times = np.empty((len(delays), 3))
    clock, barrier = time.perf_counter, procedure.barrier
    timed = subject.open(block, len(delays))
    gc.collect()
    gc.disable()
    try:
        for call, delay in enumerate(delays):
            subject.prepare(call)
            mine, longest = float(delay[rank]), float(delay.max())
            barrier.wait()
            released = clock()
            procedure.inject(mine)
            arrival = clock()
            answer = timed()
            end = clock()
            barrier.wait(rest_until=released + longest)  # nobody checks while another is still in its timed call
            subject.check(call, answer)
            times[call] = released, arrival, end - arrival
    finally:
        gc.enable()
    subject.close()
    return times


def _gather(comm: MPI.Comm, times: Floats, one_machine: bool) -> Samples:
    everything = comm.gather(times)
    if everything is None:
        return Samples(np.empty((0, 0)), np.empty((0, 0)))
    released, arrivals, latencies = np.moveaxis(np.stack(everything), 2, 0)
    return Samples(arrivals if one_machine else arrivals - released, latencies)


def _on_one_machine(comm: MPI.Comm) -> bool:
    """time.perf_counter is CLOCK_MONOTONIC, which the processes of one machine share (MPI_Wtime need not be)."""
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    alone = node.size == comm.size
    node.Free()
    return bool(alone)
