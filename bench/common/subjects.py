"""The collectives under test, all driven in the same way: open, then per call prepare, the timed call, check; close.

What is timed is the library's own function with its arguments: a Python function around it, whose code and data are in
no cache when a rank comes out of its sleep, would take several microseconds, as much as the call itself.
"""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from mpi4py import MPI

import pycollectives as pc

from .audit import Call, CallHistory, audit_calls
from .cells import Cell, Summary
from .cli import RunError
from .ideal import policy_waits, synchronous_waits
from .patterns import Contributions
from .timing import measure

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from pycollectives.support.typing import Late

    from .cli import Sweep
    from .policies import PolicyName
    from .timing import Procedure


@dataclass(frozen=True)
class Operand:
    """What is reduced, and how it is checked."""

    dtype: np.dtype[Any]
    bytes: int
    seed: int
    verify: bool

    @property
    def count(self) -> int:
        return self.bytes // self.dtype.itemsize


class Subject(Protocol):
    def open(self, block: int, calls: int) -> Callable[[], Any]:
        """Collective. Prepares for `calls` calls of what it returns: the timed region."""

    def prepare(self, call: int) -> None:
        """Writes the contribution of this call."""

    def check(self, call: int, answer: Any) -> None:
        """Looks at the result of the last call, and what it returned."""

    def close(self) -> None:
        """Collective. Raises RunError on every rank if a result of the block was wrong."""


class Source:
    """One rank's contributions."""

    def __init__(self, comm: MPI.Comm, operand: Operand) -> None:
        self._rank = comm.rank
        self._operand = operand
        self.buffer = np.ones(operand.count, operand.dtype)
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
            self._contributions.fill(self.buffer, self.values[call])

    def total(self, result: NDArray[Any]) -> float | int | None:
        assert self._contributions is not None
        return self._contributions.total(result)


class MpiAllreduce:
    """MPI_Allreduce in its cheapest Python form: buffers and datatype prepared once."""

    name = "MPI_Allreduce"

    def __init__(self, comm: MPI.Comm, operand: Operand) -> None:
        self._comm = comm
        self._verify = operand.verify
        self._source = Source(comm, operand)
        self._out = np.empty_like(self._source.buffer)
        datatype = MPI.Datatype.fromcode(operand.dtype.char)
        self._send = [self._source.buffer, operand.count, datatype]
        self._receive = [self._out, operand.count, datatype]
        self._totals: list[float | int | None] = []

    def open(self, block: int, calls: int) -> Callable[[], Any]:
        self._source.open(block, calls)
        self._totals = []
        return self._timed()

    def _timed(self) -> Callable[[], Any]:
        return functools.partial(self._comm.Allreduce, self._send, self._receive)

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
    """MPI_Iallreduce, waited for at once."""

    name = "MPI_Iallreduce"

    def _timed(self) -> Callable[[], Any]:
        return lambda: self._comm.Iallreduce(self._send, self._receive).Wait()


COPIED = 4096
"""Bytes up to which it is cheaper to have a result copied into an array than to be given a view of it."""


class PartialAllreduce:
    """Ours in its cheapest Python form: a view of the result, or a copy of a short one.

    The communicator lives for one block, so that nothing of the library runs while the others are timed.
    """

    def __init__(
        self,
        comm: MPI.Comm,
        operand: Operand,
        policy: PolicyName,
        *,
        late: Late,
        algorithm: str,
        ranks_per_node: int | None,
    ) -> None:
        self._comm = comm
        self._operand = operand
        self._policy = policy
        self._late = late
        self._algorithm = algorithm
        self._ranks_per_node = ranks_per_node
        self._source = Source(comm, operand)
        self._out = np.empty_like(self._source.buffer)
        self._history = CallHistory()
        self._open = contextlib.ExitStack()
        self.algorithm = algorithm  # once open, what "auto" stands for
        self.active: list[list[int]] = []  # of each call of each block, warm-up included
        self.initiators: list[list[int]] = []

    def open(self, block: int, calls: int) -> Callable[[], Any]:
        self._source.open(block, calls)
        self._history = CallHistory()
        self.active.append([])
        self.initiators.append([])
        communicator = self._open.enter_context(pc.Communicator(self._comm, ranks_per_node=self._ranks_per_node))
        try:
            collective = communicator.partial_allreduce(
                like=self._source.buffer,
                op=MPI.SUM,
                policy=self._policy.build(self._operand.seed + block),
                late=self._late,
                missed="latest",  # as the paper
                algorithm=self._algorithm,
            )
        except ValueError as error:  # of the arguments, which are the same on every rank
            self._open.close()
            raise RunError(str(error)) from error
        self._collective = self._open.enter_context(collective)
        self.algorithm = collective.algorithm
        arguments = [self._source.buffer, self._out]
        return functools.partial(collective.allreduce, *arguments[: 2 if self._out.nbytes <= COPIED else 1])

    def prepare(self, call: int) -> None:
        self._source.write(call)

    def check(self, call: int, answer: Any) -> None:
        result, info = answer
        self.active[-1].append(info.active)
        self.initiators[-1].append(info.initiator)
        if self._operand.verify:
            self._history.calls.append(self._call_of(self._source.values[call], info, result))

    def close(self) -> None:
        info = self._collective.flush()
        if self._operand.verify:
            self._history.flush = self._call_of(0, info, self._collective.result)
        self._open.close()
        if self._operand.verify:
            self._audit()

    def _call_of(self, value: int, info: Any, result: NDArray[Any]) -> Call:
        return Call(
            value=value,
            round=info.round,
            initiator=info.initiator,
            contributors=tuple(info.contributors),
            active=info.active,
            included=info.included,
            total=self._source.total(result),
        )

    def _audit(self) -> None:
        histories = self._comm.gather(self._history)
        findings: list[str] = []
        if histories is not None:
            findings = audit_calls(histories, late=self._late, quorum=self._policy.least_contributors(self._comm.size))
        findings = self._comm.bcast(findings)
        if findings:
            shown = "\n  ".join(findings[:5])
            raise RunError(f"{self._policy} at {self._operand.bytes} bytes: {len(findings)} findings\n  {shown}")


def measure_cell(
    comm: MPI.Comm,
    sweep: Sweep,
    policy: PolicyName,
    size: int,
    procedure: Procedure,
    baselines: tuple[type[MpiAllreduce], ...] = (MpiAllreduce,),
) -> Cell | None:
    """Collective; None on all ranks but 0."""
    operand = Operand(sweep.dtype, size, sweep.seed, sweep.verify)
    ours = PartialAllreduce(
        comm, operand, policy, late=sweep.late, algorithm=sweep.algorithm, ranks_per_node=sweep.ranks_per_node
    )
    theirs = [baseline(comm, operand) for baseline in baselines]
    samples, *others = measure(comm, [ours, *theirs], procedure)
    if comm.rank != 0:
        return None
    initiators = np.array(_counted(ours.initiators, procedure.warmup))
    return Cell(
        latency=Summary.of(samples.latencies * 1e6),
        mpi={subject.name: Summary.of(other.latencies * 1e6) for subject, other in zip(theirs, others, strict=True)},
        active_mean=float(np.mean(_counted(ours.active, procedure.warmup))),
        ideal_us=float(policy_waits(policy, samples.arrivals, initiators).mean() * 1e6),
        ideal_mpi_us=float(synchronous_waits(others[0].arrivals).mean() * 1e6),
        algorithm=ours.algorithm,
    )


def _counted(blocks: list[list[int]], warmup: int) -> list[int]:
    return [value for block in blocks for value in block[warmup:]]
