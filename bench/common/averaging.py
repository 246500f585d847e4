"""How workers average their weights: all of them with MPI_Allreduce, or in groups; driven in the same way."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Protocol

import numpy as np
from mpi4py import MPI

import pycollectives as pc

from .launch import RunError
from .model import Model

if TYPE_CHECKING:
    from .generators import Generator


class Answer(Protocol):
    """What a synchronisation says of itself."""

    @property
    def group(self) -> tuple[int, ...]: ...
    @property
    def sequence(self) -> int: ...
    @property
    def waited(self) -> float: ...
    @property
    def conflicts(self) -> int: ...


class Averaging(Protocol):
    model: Model

    def open(self) -> None:
        """Collective."""

    def synchronise(self, step: int, over: bool) -> Answer | None:
        """Average the weights with others'; `over`: this worker's time is over. None: as all with all."""

    def goes_on(self, over: bool) -> bool:
        """Whether a worker whose time is over or not makes another iteration."""

    def close(self) -> None:
        """Leave; returns when nobody needs this worker any more."""


class AllreduceAveraging:
    """MPI_Allreduce in place and a division.

    All must end after the same iteration, so one more number goes with the weights: how many workers' time is over.
    """

    def __init__(self, comm: MPI.Comm, count: int) -> None:
        self._comm = comm
        self.model = Model(count, comm.rank, extra=1)
        self._message = [self.model.buffer, count + 1, MPI.FLOAT]
        self._ended = False

    def open(self) -> None:
        self._ended = False

    def synchronise(self, step: int, over: bool) -> Answer | None:
        del step
        buffer = self.model.buffer
        buffer[-1] = over
        self._comm.Allreduce(MPI.IN_PLACE, self._message)
        np.divide(buffer, np.float32(self._comm.size), out=buffer)
        self._ended = bool(buffer[-1] > 0)
        return None

    def goes_on(self, over: bool) -> bool:
        del over
        return not self._ended

    def close(self) -> None:
        pass


class GroupAveraging:
    """A P-Reduce in the group that a generator chooses."""

    def __init__(self, comm: MPI.Comm, count: int, generator: Generator, ranks_per_node: int | None) -> None:
        self._comm = comm
        self._generator = generator
        self._ranks_per_node = ranks_per_node
        self.model = Model(count, comm.rank)
        self._open = contextlib.ExitStack()

    def open(self) -> None:
        communicator = self._open.enter_context(pc.Communicator(self._comm, ranks_per_node=self._ranks_per_node))
        try:
            collective = communicator.partial_reduce(like=self.model.weights, groups=self._generator, op=pc.AVG)
        except ValueError as error:  # of the arguments, which are the same on every rank
            self._open.close()
            raise RunError(str(error)) from error
        self._collective = self._open.enter_context(collective)

    def synchronise(self, step: int, over: bool) -> Answer | None:
        del over
        answer: Answer = self._collective.sync(self.model.weights, step)
        return answer

    def goes_on(self, over: bool) -> bool:
        return not over

    def close(self) -> None:
        self._open.close()
