"""Barriers between timed regions."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from mpi4py import MPI

FIRST_NAP = 50e-6
LONGEST_NAP = 400e-6  # with which ranks come out of the barrier apart; small beside a skew of milliseconds


class Barrier(Protocol):
    def wait(self, rest_until: float = 0.0) -> None:
        """Returns when every rank has called. Nobody else can be there before `rest_until` (time.perf_counter)."""


class SleepingBarrier:
    """Naps instead of spinning, so that ranks that are done leave the cores to those still in their timed call."""

    def __init__(self, comm: MPI.Comm) -> None:
        self._comm = comm

    def wait(self, rest_until: float = 0.0) -> None:
        request = self._comm.Ibarrier()
        rest = rest_until - time.perf_counter()
        if rest > 0:
            time.sleep(rest)
        nap = FIRST_NAP
        while not request.Test():
            time.sleep(nap)
            nap = min(2 * nap, LONGEST_NAP)


class TightBarrier:
    """MPI_Barrier: lets the ranks go as close together as MPI can. For balanced runs."""

    def __init__(self, comm: MPI.Comm) -> None:
        self._comm = comm

    def wait(self, rest_until: float = 0.0) -> None:
        del rest_until  # nobody is late in a balanced run
        self._comm.Barrier()
