"""The communicator: one rank's engine on a group of ranks, and the collectives that are open on it."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal

from .agreement.checking import Checks, NoChecks
from .agreement.fingerprint import Fingerprint
from .agreement.options import Options
from .agreement.rendezvous import Rendezvous
from .open_collectives import Collectives
from .open_communicators import open_communicators
from .partial_allreduce.policies import Policy, Solo
from .partial_reduce.explicit import ExplicitGroups
from .support.deadline import Deadline
from .support.environment import checked_ranks_per_node, checked_timeout
from .support.lifecycle import leave
from .support.nodes import nodes_of
from .support.operations import AVG

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from mpi4py import MPI
    from typing_extensions import Self

    from . import _core
    from .agreement.rendezvous import SignedT
    from .partial_allreduce.collective import PartialAllreduce
    from .partial_reduce.arguments import AnyGroups
    from .partial_reduce.collective import PartialReduce
    from .support.typing import BufferSpec, DType, Late, Missed, Op, Progress

__all__ = ["Communicator"]


class Communicator:
    """A group of ranks with an engine that works in the background; made and closed by all of them (collective).

    The messages of this package go over duplicates of the communicator given, so that they never meet the user's.

    With `PYC_CHECK=1` in the environment ranks compare what they call and what rounds gave them: for debugging.

    As a context manager it flushes and closes what is open, in the order of creation, and waits until every rank has
    closed everything. If the block raises, it closes at once, waits for nobody, discards data that waits, and a
    `RuntimeWarning` says how much; the other ranks go on without this one.

    Parameters
    ----------
    comm
        An mpi4py intracommunicator. MPI must be initialised, with `MPI.THREAD_MULTIPLE` unless `progress="caller"`.
    progress
        "thread": one thread per process serves all communicators; "caller": messages move only inside calls of this
        package. Default: `PYC_PROGRESS`, or "thread".
    ranks_per_node
        How many ranks of a machine form a node: they work together in shared memory, on a board, and only one of them
        exchanges messages, with the other nodes'. "all", or a number, in the order of ranks; 1: all goes by messages.
        Default: `PYC_RANKS_PER_NODE`, or "all".
    timeout
        Default limit in seconds for creating, flushing and closing collectives. Default: `PYC_TIMEOUT`, or none.

    Raises
    ------
    ValueError, TypeError
        An argument or an environment variable is refused; no communicator, or an intercommunicator.
    RuntimeError
        MPI is not initialised, is finalised, or its thread level is too low.
    MismatchError
        Another rank's arguments were refused, or `ranks_per_node` or `PYC_CHECK` differ between ranks.
    StallError
        Some ranks do not make it within the time limit.

    >>> import numpy as np, pycollectives as pc
    >>> from mpi4py import MPI
    >>> with pc.Communicator(MPI.COMM_SELF) as comm:
    ...     total = comm.partial_allreduce(like=np.zeros(3))
    ...     result, info = total.allreduce(np.ones(3))
    ...     print(comm.rank, comm.size, result)
    0 1 [1. 1. 1.]
    """

    def __init__(
        self,
        comm: MPI.Comm,
        *,
        progress: Progress | None = None,
        ranks_per_node: int | Literal["all"] | None = None,
        timeout: float | None = None,
    ) -> None:
        """See the class."""
        from .support.native import core

        options, nodes = Options.agreed(comm, progress, ranks_per_node, timeout)

        def engine() -> _core.Engine:
            return core.Engine.mpi(comm, progress=options.progress, exit_timeout=options.exit_timeout)

        self._start(engine(), comm, nodes, options.timeout, engine() if options.check else None)

    @classmethod
    def from_engine(
        cls,
        engine: _core.Engine,
        *,
        ranks_per_node: int | Literal["all"] = "all",
        timeout: float | None = None,
        meetings: _core.Engine | None = None,
    ) -> Self:
        """Wrap an engine that is not on MPI, and one for checks: see `pycollectives.testing.loopback`."""
        self = cls.__new__(cls)
        nodes = nodes_of(["this process"] * engine.size, checked_ranks_per_node(ranks_per_node))
        self._start(engine, None, nodes, checked_timeout(timeout), meetings)
        return self

    def _start(
        self,
        engine: _core.Engine,
        comm: MPI.Comm | None,
        nodes: list[int],
        timeout: float | None,
        meetings: _core.Engine | None,
    ) -> None:
        self._engine = engine
        self._nodes = nodes
        self._comm = comm
        self._timeout = timeout
        self._rank = engine.rank
        self._size = engine.size
        self._checks = NoChecks() if meetings is None else Checks(meetings, timeout)
        self._rendezvous = Rendezvous(engine, self._checks, timeout)
        self._collectives = Collectives(engine, nodes, self._rendezvous, self._checks, timeout)
        self._explicit_groups = ExplicitGroups(engine, nodes)
        open_communicators[self] = None

    @property
    def rank(self) -> int:
        """The number of this process, 0 <= rank < size."""
        return self._rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self._size

    @property
    def ranks_per_node(self) -> int:
        """Ranks of the largest node, which work together in shared memory; 1: every rank is a node of its own."""
        return max(Counter(self._nodes).values())

    @property
    def nodes(self) -> tuple[int, ...]:
        """The node of each rank; nodes are numbered in the order of their lowest ranks."""
        return tuple(self._nodes)

    @property
    def comm(self) -> MPI.Comm:
        """The communicator that this one was made from."""
        if self._comm is None:
            raise RuntimeError("this communicator joins threads of one process: there is no MPI communicator under it")
        return self._comm

    @property
    def progress(self) -> str:
        """Who moves messages while no call waits: "thread" or "caller"."""
        return self._engine.progress

    @property
    def transport(self) -> str:
        """What carries messages: "mpi" or "loopback"."""
        return self._engine.transport

    @property
    def closed(self) -> bool:
        """Whether this rank has closed it."""
        return self._rendezvous.closed

    def advance(self) -> bool:
        """Move what can be moved, without waiting; whether anything did. For `progress="caller"`."""
        return self._engine.advance()

    def flight_record(self) -> dict[str, Any]:
        """Return the newest rounds as this rank has seen them, and what it waits for: plain data for JSON.

        The last `PYC_FLIGHT_ROUNDS` (256) of all collectives together. Any thread may call it at any time. The keys are
        explained in docs/tutorial.md, "When it hangs".

        >>> import numpy as np, pycollectives as pc
        >>> from mpi4py import MPI
        >>> with pc.Communicator(MPI.COMM_SELF) as comm:
        ...     ar = comm.partial_allreduce(like=np.ones(3))
        ...     _ = ar.allreduce(np.ones(3))
        ...     comm.flight_record()["rounds"][0]["contributors"]
        [0]
        """
        record: dict[str, Any] = json.loads(self._engine.flight_record())
        return record

    def partial_allreduce(
        self,
        like: BufferSpec | None = None,
        *,
        count: int | None = None,
        dtype: DType | None = None,
        op: Op = "SUM",
        policy: Policy = Solo(),  # noqa: B008 - immutable
        late: Late = "accumulate",
        missed: Missed = "latest",
        max_staleness: int | None = None,
        algorithm: str = "auto",
        history: int = 8,
        name: str | None = None,
    ) -> PartialAllreduce:
        """Make a partial allreduce; collective (eager-SGD, section 4).

        Parameters
        ----------
        like
            A buffer, or `[buffer, count, type]`, whose shape and dtype contributions and results have.
        count, dtype
            Instead of `like`: elements, and NumPy's or MPI's type of them. Results are flat.
        op
            `MPI.SUM`, `MPI.PROD`, `MPI.MIN`, `MPI.MAX`, or `pycollectives.AVG`, which divides by the number of
            contributors; or its name.
        policy
            Who may start a round.
        late
            What becomes of data that came too late for a round. "accumulate": it goes into the next round, combined
            with `op` with what this rank contributes until then. "replace": it goes into the next round, unless newer
            data of this rank replaces it first. "drop": data that misses the round that its call completes with is
            discarded at once, unless a round waits for it (`max_staleness`); other data that no round has taken yet is
            replaced by newer.
        missed
            What a late call is given: "latest", the newest result, or "sum", the sum of all results that this rank
            had not been given (`op` SUM or AVG).
        max_staleness
            After so many rounds in a row for which a rank had nothing to give, the next waits for it. None: never.
        algorithm
            "auto": what was measured to be best for these ranks, nodes and bytes (`python -m pycollectives tune`).
            "board": in shared memory within nodes, and messages between nodes by the best schedule, or by a chosen one:
            "board+NAME". NAME: messages among all ranks by that schedule; `python -m pycollectives info` lists them.
        history
            Rounds, at least 1, that a call can have missed before `RoundInfo.overrun` is True. Under `missed="sum"`
            so many results are kept one by one, and older ones are folded into a running total: nothing is lost,
            and memory stays bounded.
        name
            In messages and traces; by default a number in the order of creation.

        Raises
        ------
        ValueError, TypeError, BufferError
            An argument is refused: on this rank. The others raise `MismatchError`.
        MismatchError
            Arguments differ between ranks, or another rank's were refused. Only the shape may differ.
        StallError
            Some ranks do not create it within the communicator's timeout.
        ClosedError
            The communicator is closed.
        """
        return self._create(
            "partial_allreduce",
            lambda: like,
            count=count,
            dtype=dtype,
            op=op,
            policy=policy,
            late=late,
            missed=missed,
            max_staleness=max_staleness,
            algorithm=algorithm,
            history=history,
            name=name,
        )

    def _create(self, call: str, like: Callable[[], object], **arguments: object) -> PartialAllreduce:
        """Make a partial allreduce under the name of another call; what `like` raises is a refusal of this rank."""
        return self._collectives.partial_allreduce(call, like, **arguments)

    def _agree(self, call: str, check: Callable[[], SignedT]) -> SignedT:
        """Let ranks compare the arguments of a call that is built on this communicator; raises as `agree` does."""
        return self._rendezvous.agree(call, check)

    def partial_reduce(
        self,
        like: BufferSpec,
        *,
        groups: AnyGroups,
        op: Op = AVG,
        coordinator_rank: int = 0,
        weighting: Literal["uniform", "staleness"] = "uniform",
        name: str | None = None,
    ) -> PartialReduce:
        """Make a partial reduce, which averages in groups that a generator forms; collective (Ripples, section 4).

        Parameters
        ----------
        like
            A buffer, or `[buffer, count, type]`, with the count and dtype of the weights.
        groups
            Who averages with whom: `SmartGroups()`, `PunctualGroups()`, `RandomGroups()` or `StaticGroups(n)`.
        op
            As for `partial_allreduce`; AVG divides by the number of members.
        coordinator_rank
            The rank whose engine, in the background, has the generator. It is a worker as the others are.
        weighting
            "uniform": members count alike. "staleness": a member that is s steps behind the newest step that the
            generator had heard of when the group started counts 1 / (1 + s) times (op AVG, floats).
        name
            In messages and traces; by default a number in the order of creation.

        Raises
        ------
        ValueError, TypeError, BufferError
            An argument is refused: on this rank. The others raise `MismatchError`.
        MismatchError
            Arguments differ between ranks, or another rank's were refused. Only the shape may differ.
        StallError
            Some ranks do not create it within the communicator's timeout.
        ClosedError
            The communicator is closed.
        """
        return self._collectives.partial_reduce(
            like, groups=groups, op=op, coordinator_rank=coordinator_rank, weighting=weighting, name=name
        )

    def preduce(self, x: BufferSpec, group: Iterable[int], op: Op = AVG, timeout: float | None = None) -> None:
        """Reduce in place among exactly the ranks of a group: a P-Reduce; collective among them (Ripples, section 3).

        Nobody else takes part, and nothing is created for a group. Ranks must perform the groups that they have in
        common in the same order. Members that are all of one node meet in shared memory if `x` is long, from 64 KiB on.

        Parameters
        ----------
        x
            C-contiguous, writable host memory, of the same count and dtype on all members. Several arrays: see
            `flatten`.
        group
            The members, in any order.
        op
            As for `partial_allreduce`; AVG divides by the number of members.
        timeout
            Seconds; None for no limit.

        Raises
        ------
        ValueError, TypeError
            A member is no rank of this communicator, is there twice, or this rank is not; `op` or `x` is refused.
        BufferError
            `x` is read-only or not C-contiguous. Nothing is sent in these cases.
        StallError
            Not done in time: names the group and who has not come. `x` may still be changed, if they come late.
        MismatchError
            A member is in another P-Reduce with this rank: other members, another order, count, dtype or `op`.
        RankFailedError
            A rank of this node that this one has met in a group has died.
        RuntimeError
            Shared memory cannot be had, here or on a member.
        ClosedError
            The communicator is closed, here or on a member; or an earlier P-Reduce ended by an error, here or on a
            member. After these errors this rank can perform no P-Reduce on this communicator any more; what else is
            open on it goes on.

        >>> import numpy as np
        >>> from pycollectives.testing import run_ranks
        >>> def program(comm):
        ...     x = np.full(2, float(comm.rank))
        ...     if comm.rank != 1:
        ...         comm.preduce(x, group=[2, 0])
        ...     return x.tolist()
        >>> run_ranks(3, program)
        [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]
        """
        self._rendezvous.check_open()
        self._explicit_groups.reduce(x, group, op, timeout)

    @property
    def preduce_cache(self) -> tuple[int, int]:
        """How many calls of `preduce` found a plan that was there (hits), and how many needed a new one (misses).

        Of groups that go by messages. A plan serves all groups of a size in which this rank has the same place; the
        newest 64 are kept.
        """
        return self._explicit_groups.cache

    def is_same_on_all_ranks(self, x: BufferSpec) -> bool:
        """Whether a buffer is the same on all ranks: element type, shape and bits; collective.

        For training loops: whether the replicas of a model agree. Only a hash is sent; it is computed where the data
        is, by one core at about 1 GB/s. All ranks wait for all, as in a barrier: so `flush` first, or the others may
        wait for a contribution of a rank that waits here.

        Parameters
        ----------
        x
            C-contiguous host memory of any shape and element type: a NumPy array or anything that exports PEP 3118 or
            DLPack, or `[buffer, count, type]`, whose shape is its count. Bits are compared: 0.0 and -0.0 differ, a NaN
            is the same as one of the same bits.

        Returns
        -------
        bool
            The same on every rank.

        Raises
        ------
        ValueError, TypeError, BufferError
            The buffer is refused: on this rank. The others raise `MismatchError`.
        MismatchError
            Another rank's buffer was refused, or another rank makes another collective call.
        StallError
            Some ranks do not call it within the communicator's timeout; no collective can be made on it afterwards.
        ClosedError
            The communicator is closed.

        >>> import numpy as np
        >>> from pycollectives.testing import run_ranks
        >>> def program(comm):
        ...     weights = np.arange(3.0)
        ...     equal = comm.is_same_on_all_ranks(weights)
        ...     weights[1] += comm.rank
        ...     return equal, comm.is_same_on_all_ranks(weights)
        >>> run_ranks(2, program)
        [(True, False), (True, False)]
        """
        _, told = self._rendezvous.share("is_same_on_all_ranks", lambda: Fingerprint.of(x))
        return all(other == told[0] for other in told)

    def close(self, timeout: float | None = None) -> None:
        """Flush and close what is open, in the order of creation, and wait for all ranks to do so; collective.

        Parameters
        ----------
        timeout
            Seconds for all of it; None for the communicator's default.

        Raises
        ------
        StallError
            Names the ranks that have not closed. The communicator stays open: call again, or `abort`.
        MismatchError
            With `PYC_CHECK=1`: ranks make different calls, or a round was not the same on all. The communicator stays
            open here too, without checks.
        """
        if self.closed:
            return
        deadline = Deadline(self._timeout if timeout is None else checked_timeout(timeout))
        self._collectives.close(deadline)
        self._explicit_groups.close()
        self._checks.finish(deadline.remaining())
        self._engine.close(timeout=deadline.remaining())
        self._end()

    def abort(self) -> int:
        """Close at once, wait for nobody and discard what waits; the number of contributions discarded.

        The engine serves the other ranks' rounds, with this rank absent, until the process ends.
        """
        if self.closed or not self._engine.in_own_process:
            return 0
        discarded = self._collectives.abort()
        self._checks.leave()
        self._engine.abort()
        self._end()
        return discarded

    def _end(self) -> None:
        self._rendezvous.close()
        open_communicators.pop(self, None)

    def __repr__(self) -> str:
        """Show the rank and what is open."""
        state = "closed" if self.closed else f"{len(self._collectives)} open"
        return f"<Communicator rank {self._rank} of {self._size}, {state}>"

    def __enter__(self) -> Self:
        """Return itself."""
        self._rendezvous.check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close; after an exception close at once and warn of what is discarded."""
        leave(repr(self), kind, close=self.close, abort=self.abort, is_open=len(self._collectives) > 0)
