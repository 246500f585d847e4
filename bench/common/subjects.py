"""The collectives under test, with one interface: open, then per call prepare, the timed call and check, then close.

The timed function is the library's own function with its arguments. A Python function around it would take several
microseconds, as much as the call itself, since its code and data are not in a cache when a rank wakes up.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from mpi4py import MPI

import pycollectives as pc

from .arrays import HOST
from .audit import Call, CallHistory, audit_calls
from .cells import Cell
from .errors import RunError, require_none
from .ideal import policy_waits, synchronous_waits
from .mpi_subjects import MpiAllreduce, Operand, Source
from .summary import Summary
from .timing import measure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pycollectives.support.typing import Late

    from .arrays import Arrays
    from .cli import Sweep
    from .policies import PolicyName
    from .timing import Procedure, Samples


class Subject(Protocol):
    def open(self, block: int, calls: int) -> Callable[[], Any]:
        """Prepare for `calls` calls of the returned function, which is the timed region; collective."""

    def prepare(self, call: int) -> None:
        """Write the contribution of this call."""

    def check(self, call: int, answer: Any) -> None:
        """Check the result of the last call, and its return value."""

    def close(self) -> None:
        """Close; raise RunError on every rank if a result of the block was wrong; collective."""


COPIED = 4096
"""Size in bytes up to which copying a result into an array is cheaper than returning a view."""


class PartialAllreduce:
    """Our allreduce in its cheapest Python form: a view of the result, or a copy of a short one.

    The communicator lives for one block, so that no part of the library runs while the others are timed.
    """

    def __init__(
        self,
        comm: MPI.Comm,
        operand: Operand,
        policy: PolicyName,
        *,
        late: Late,
        algorithm: str,
        activation: str = "auto",
        ranks_per_node: int | None,
        on_failure: Literal["raise", "continue"] = "raise",
    ) -> None:
        self._comm = comm
        self._operand = operand
        self._policy = policy
        self._on_failure = on_failure
        self._late = late
        self._algorithm = algorithm
        self._activation = activation
        self._ranks_per_node = ranks_per_node
        self._source = Source(comm, operand)
        self._out = operand.arrays.mirror(np.empty(operand.count, operand.dtype))
        self._history = CallHistory()
        self._open = contextlib.ExitStack()
        self.algorithm = algorithm  # once open, the choice of "auto"
        self.activation: str | None = activation  # the same; None where messages start no round
        self.active: list[list[int]] = []  # per block and call, with warm-up
        self.initiators: list[list[int]] = []

    def open(self, block: int, calls: int) -> Callable[[], Any]:
        operand = self._operand
        self._source.open(block, calls)
        self._history = CallHistory()
        self.active.append([])
        self.initiators.append([])
        made = pc.Communicator(self._comm, ranks_per_node=self._ranks_per_node, on_failure=self._on_failure)
        communicator = self._open.enter_context(made)
        try:
            collective = communicator.partial_allreduce(
                self._source.buffer,
                op=MPI.SUM,
                policy=self._policy.build(operand.seed + block),
                late=self._late,
                missed="latest",  # as in the paper
                algorithm=self._algorithm,
                activation=self._activation,
            )
        except ValueError as error:  # raised on every rank, since the arguments are the same
            self._open.close()
            raise RunError(str(error)) from error
        self._collective = self._open.enter_context(collective)
        self.algorithm = collective.algorithm
        self.activation = None if self.algorithm == "board" else collective.activation
        arguments = [self._source.buffer, self._out]
        if operand.arrays is HOST:
            return functools.partial(collective.allreduce, *arguments[: 2 if operand.bytes <= COPIED else 1])
        return functools.partial(self._allreduce_on_device, *arguments)

    def _allreduce_on_device(self, x: Any, out: Any) -> Any:
        """Call and wait for the result, as for the baselines; the call itself only queues it on the stream."""
        answer = self._collective.allreduce(x, out)
        self._operand.arrays.synchronize()
        return answer

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

    def _call_of(self, value: int, info: Any, result: Any) -> Call:
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
        quorum = self._policy.least_contributors(self._comm.size)
        findings = histories and audit_calls(histories, late=self._late, quorum=quorum)
        require_none(self._comm, f"{self._policy} at {self._operand.bytes} bytes", findings)


def measure_cell(
    comm: MPI.Comm,
    sweep: Sweep,
    policy: PolicyName,
    size: int,
    procedure: Procedure,
    baselines: Sequence[type[MpiAllreduce]],
    arrays: Arrays,
) -> Cell | None:
    """Measure one cell; collective. None on all ranks but 0."""
    operand = Operand(sweep.dtype, size, sweep.seed, sweep.verify, arrays)
    ours = PartialAllreduce(
        comm,
        operand,
        policy,
        late=sweep.late,
        algorithm=sweep.algorithm,
        activation=sweep.activation,
        ranks_per_node=sweep.ranks_per_node,
        on_failure=sweep.on_failure,
    )
    theirs = [baseline(comm, operand) for baseline in baselines]
    samples, *others = measure(comm, [ours, *theirs], procedure)
    if comm.rank != 0:
        return None
    initiators = np.array(_counted(ours.initiators, procedure))
    return Cell(
        latency=Summary.of(samples.latencies * 1e6),
        mpi={subject.name: Summary.of(other.latencies * 1e6) for subject, other in zip(theirs, others, strict=True)},
        active_mean=float(np.mean(_counted(ours.active, procedure))),
        ideal_us=float(policy_waits(policy, samples.arrivals, initiators).mean() * 1e6),
        ideal_mpi_us=float(synchronous_waits((others or [samples])[0].arrivals).mean() * 1e6),
        early=early_calls(samples),
        algorithm=ours.algorithm,
        activation=ours.activation,
        warmup=max(max(one.warmups) for one in (samples, *others)),
        stationary=all(one.stationary for one in (samples, *others)),
    )


def early_calls(samples: Samples) -> Summary | None:
    """Summarize the calls that are not the last arrival of their iteration; None if all arrive at once."""
    early = samples.arrivals < samples.arrivals.max(axis=0)
    return Summary.of(samples.latencies[early] * 1e6) if early.any() else None


def _counted(blocks: list[list[int]], procedure: Procedure) -> list[int]:
    """Return the counted calls, without the warm-up at the beginning of each block."""
    return [value for block, counted in zip(blocks, procedure.blocks(), strict=True) for value in block[-counted:]]
