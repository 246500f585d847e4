"""MPI's own allreduce as a subject, and the data that all subjects reduce. Needs only NumPy and mpi4py."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from .arrays import HOST
from .errors import RunError
from .patterns import Contributions

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from .arrays import Arrays


@dataclass(frozen=True)
class Operand:
    """The reduced data, and its check."""

    dtype: np.dtype[Any]
    bytes: int
    seed: int
    verify: bool
    arrays: Arrays = HOST

    @property
    def count(self) -> int:
        return self.bytes // self.dtype.itemsize


class Source:
    """One rank's contributions."""

    def __init__(self, comm: MPI.Comm, operand: Operand) -> None:
        self._rank = comm.rank
        self._operand = operand
        self._values = np.ones(operand.count, operand.dtype)
        self.buffer = operand.arrays.mirror(self._values)
        self._contributions: Contributions | None = None
        if operand.verify:
            try:
                self._contributions = Contributions(operand.dtype, operand.count, comm.size)
            except ValueError as error:
                raise RunError(str(error)) from error
        self.values: list[int] = []

    def open(self, block: int, calls: int) -> None:
        if self._contributions is not None:
            seed = [self._operand.seed, self._operand.bytes, self._rank, block]
            self.values = self._contributions.values(calls, seed)

    def write(self, call: int) -> None:
        if self._contributions is not None:
            self._contributions.fill(self._values, self.values[call])
            self._operand.arrays.upload(self.buffer, self._values)

    def total(self, result: Any) -> float | int | None:
        assert self._contributions is not None
        return self._contributions.total(self._operand.arrays.download(result))


class MpiAllreduce:
    """MPI_Allreduce in its cheapest Python form, with buffers and datatype prepared once."""

    name = "MPI_Allreduce"

    def __init__(self, comm: MPI.Comm, operand: Operand) -> None:
        self._comm = comm
        self._verify = operand.verify
        self._source = Source(comm, operand)
        self._out = operand.arrays.mirror(np.empty(operand.count, operand.dtype))
        self._datatype = MPI.Datatype.fromcode(operand.dtype.char)
        self._totals: list[float | int | None] = []

    def open(self, block: int, calls: int) -> Callable[[], Any]:
        self._source.open(block, calls)
        self._totals = []
        return self._timed()

    def _timed(self) -> Callable[[], Any]:
        return functools.partial(self._comm.Allreduce, *self._messages())

    def _messages(self) -> list[list[Any]]:
        """Return the message that is sent and the message that is received."""
        return [self._message(buffer) for buffer in (self._source.buffer, self._out)]

    def _message(self, buffer: NDArray[Any]) -> list[Any]:
        return [buffer, buffer.size, self._datatype]

    def prepare(self, call: int) -> None:
        self._source.write(call)

    def check(self, call: int, answer: Any) -> None:
        if self._verify:
            self._totals.append(self._source.total(self._out))

    def close(self) -> None:
        if not self._verify:
            return
        histories = self._comm.allgather((self._source.values[: len(self._totals)], self._totals))
        for call, given in enumerate(zip(*(values for values, _ in histories), strict=True)):
            if any(totals[call] != sum(given) for _, totals in histories):
                raise RunError(f"{self.name}: call {call}: expected a total of {sum(given)}")


class MpiIallreduce(MpiAllreduce):
    """MPI_Iallreduce followed by a wait."""

    name = "MPI_Iallreduce"

    def _timed(self) -> Callable[[], Any]:
        send, receive = self._messages()
        return lambda: self._comm.Iallreduce(send, receive).Wait()
