"""The communicator: one rank's engine on a group of ranks, and its open collectives."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from .agreement import fingerprint, shrinking
from .agreement.checking import Checks, NoChecks
from .agreement.consistency import Signed
from .agreement.options import RAISE, Failures
from .at_exit import open_communicators
from .collective import CommunicatorStatistics, creates
from .context import Context
from .counter.arguments import CounterArguments
from .counter.collective import SharedCounter
from .hop.arguments import HopArguments, TokenQueueArguments, UpdateQueueArguments
from .hop.collective import Hop
from .hop.token_queue import TokenQueue
from .hop.update_queue import UpdateQueue
from .membership import calls
from .membership.opening import open_communicator
from .neighbor_averaging.arguments import NeighborAveragingArguments, PairwiseArguments, PushSumArguments
from .neighbor_averaging.d_psgd import NeighborAveraging
from .neighbor_averaging.pairwise import PairwiseAveraging
from .neighbor_averaging.push_sum import PushSum
from .partial_allreduce.arguments import PartialAllreduceArguments
from .partial_allreduce.collective import PartialAllreduce
from .partial_reduce import means
from .partial_reduce.arguments import PartialReduceArguments
from .partial_reduce.collective import PartialReduce
from .servers.arguments import ParameterServerArguments
from .servers.collective import ParameterServer
from .support.deadline import Deadline
from .support.environment import checked_ranks_per_node
from .support.errors import RankFailedError
from .support.lifecycle import exit_context
from .support.nodes import nodes_of
from .support.validation import checked_timeout

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from mpi4py import MPI
    from typing_extensions import Self

    from . import _core
    from .collective import Collective
    from .membership.members import Membership
    from .support.costs import Costs
    from .support.typing import OnFailure, Progress, Respawn

SignedT = TypeVar("SignedT", bound=Signed)
CollectiveT = TypeVar("CollectiveT", bound="Collective[Any]")


class Communicator:
    """A group of ranks that make collectives together; creating and closing it are collective.

    An engine in the background sends its messages on duplicates of `comm`, so that they never mix with the
    application's messages.

    For debugging, `PYC_CHECK=1` in the environment makes ranks compare their calls and the results of their rounds.

    As a context manager, it flushes and closes its open collectives in the order of creation, and waits until every
    rank has closed the communicator. If the block raises, it closes at once, without waiting for other ranks. A
    `RuntimeWarning` then gives the number of discarded contributions, and the other ranks continue without this one.

    Parameters
    ----------
    comm
        An mpi4py intracommunicator. MPI must be initialized, with `MPI.THREAD_MULTIPLE` unless `progress="caller"`.
    progress
        "thread": one thread per process serves all communicators. "caller": messages move only inside calls of this
        package. Default: `PYC_PROGRESS`, or "thread".
    ranks_per_node
        The number of ranks of a machine that form a node, in the order of ranks, or "all". Ranks of a node exchange
        data in shared memory, and only one of them exchanges messages with other nodes. 1: all data travels in
        messages. Default: `PYC_RANKS_PER_NODE`, or "all".
    timeout
        Default time limit of all calls that wait for other ranks, in seconds. `math.inf`: no limit. Default:
        `PYC_TIMEOUT`, or no limit.
    on_failure
        The effect of a rank's death. "raise": every call raises `RankFailedError`, and `shrink` makes a communicator of
        the survivors. "continue": the next call of each survivor waits until all survivors make one, and then continues
        without the dead ranks. This supports arrays in host memory, and needs a job that outlives a rank. See
        docs/howto/after-a-death.md for the rules.
    spares
        With `on_failure="continue"`, the number of spares: the highest ranks of `comm`, which wait in the constructor.
        After a death, one of them returns from the constructor with the number of the dead rank: see `state`. Spares
        that are not needed raise `SystemExit` at the end of the job.
    respawn
        With `on_failure="continue"`, whether the survivors start the program again for each dead rank without a spare.
        The new process gets the dead rank's number in the constructor. With True, the survivors wait until it has
        joined. With "background", they continue, and it joins during one of their calls once it has started. Only one
        communicator per program can use this option.
    costs
        Costs of messages between nodes, for `algorithm="auto"`. Default: two ranks measure them with 80 messages, if
        there are several nodes, every rank has a core, and `python -m pycollectives tune` has not written a table. Such
        a table takes precedence over costs.

    Raises
    ------
    ValueError, TypeError
        An argument or an environment variable is refused, or `comm` is not an intracommunicator.
    RuntimeError
        MPI is not initialized or is finalized, or its thread level is too low.
    MismatchError
        Another rank's arguments are refused, or `ranks_per_node`, `PYC_CHECK` or `PYC_HEARTBEAT_TIMEOUT` differ
        between ranks.
    StallError
        Some ranks do not make this call within the time limit.

    >>> import numpy as np, pycollectives as pc
    >>> from mpi4py import MPI
    >>> with pc.Communicator(MPI.COMM_SELF) as comm:
    ...     total = comm.partial_allreduce(np.zeros(3))
    ...     result, info = total.allreduce(np.ones(3))
    ...     print(comm.rank, comm.size, result)
    0 1 [1. 1. 1.]
    """

    _engine: _core.Engine
    _engines: list[_core.Engine]
    _comm: MPI.Comm | None
    _context: Context
    _membership: Membership | None

    def __init__(
        self,
        comm: MPI.Comm,
        *,
        progress: Progress | None = None,
        ranks_per_node: int | Literal["all"] | None = None,
        timeout: float | None = None,
        costs: Costs | None = None,
        on_failure: OnFailure = "raise",
        spares: int = 0,
        respawn: Respawn = False,
    ) -> None:
        self._open(comm, (progress, ranks_per_node, timeout, costs), Failures(on_failure, spares, respawn))

    def _open(
        self,
        comm: MPI.Comm,
        arguments: tuple[Any, ...],
        failures: Failures = RAISE,
        limit: float | None = None,
    ) -> None:
        """Open the communicator. `limit`: seconds to wait for the other ranks; None for the limit in `arguments`."""
        self._arguments = arguments
        open_communicator(self, comm, arguments, failures, limit)

    @staticmethod
    def _made_within(
        comm: MPI.Comm, limit: float | None, arguments: tuple[Any, ...] = (None, None, None, None)
    ) -> Communicator:
        """Make a communicator with its own time limit for the creation; collective over `comm`."""
        made = Communicator.__new__(Communicator)
        made._open(comm, arguments, limit=limit)
        return made

    @classmethod
    def _from_engine(
        cls,
        engine: _core.Engine,
        *,
        ranks_per_node: int | Literal["all"] = "all",
        timeout: float | None = None,
        check_engine: _core.Engine | None = None,
        costs: Costs | None = None,
    ) -> Self:
        """Wrap an engine that does not use MPI, and one for checks: see `pycollectives.testing.loopback`."""
        self = cls.__new__(cls)
        nodes = nodes_of(["this process"] * engine.size, checked_ranks_per_node(ranks_per_node))
        self._start(None, checked_timeout(timeout), engine, check_engine, nodes, costs)
        return self

    def _start(
        self,
        comm: MPI.Comm | None,
        timeout: float | None,
        engine: _core.Engine,
        check_engine: _core.Engine | None,
        nodes: Sequence[int],
        costs: Costs | None,
    ) -> None:
        self._engine = engine
        self._comm = comm
        self._rank = engine.rank
        self._size = engine.size
        self._engines = [engine] if check_engine is None else [engine, check_engine]
        self._shrinking: shrinking.Shrinking | None = None
        self._membership = None
        checks = NoChecks() if check_engine is None else Checks(check_engine, timeout)
        self._context = Context(engine, nodes, checks, timeout, costs, communicator=self)
        open_communicators[self] = None

    partial_allreduce = creates(PartialAllreduce, PartialAllreduceArguments)
    partial_reduce = creates(PartialReduce, PartialReduceArguments)
    pairwise_averaging = creates(PairwiseAveraging, PairwiseArguments)
    neighbor_averaging = creates(NeighborAveraging, NeighborAveragingArguments)
    push_sum = creates(PushSum, PushSumArguments)
    hop = creates(Hop, HopArguments)
    update_queue = creates(UpdateQueue, UpdateQueueArguments)
    token_queue = creates(TokenQueue, TokenQueueArguments)
    parameter_server = creates(ParameterServer, ParameterServerArguments)
    counter = creates(SharedCounter, CounterArguments)
    preduce = means.preduce
    _c_preduce = means.c_preduce
    mean = means.mean
    is_same_on_all_ranks = fingerprint.is_same_on_all_ranks
    shrink = shrinking.shrink
    on_failure = property(calls.on_failure)
    members = property(calls.members)
    epoch = property(calls.epoch)
    on_change = calls.on_change
    state = calls.state

    def create(self, kind: type[CollectiveT], *arguments: Any, **options: Any) -> CollectiveT:
        """Make and return a collective of any kind; collective. For services that have no `Communicator` method.

        Parameters
        ----------
        kind
            A class derived from `pycollectives.collective.Collective`.
        arguments, options
            The arguments of `kind.arguments`.

        Raises
        ------
        ValueError, TypeError, BufferError, MismatchError, StallError, RuntimeError, ClosedError
            As for `partial_allreduce`.
        """
        return creates(kind, kind.arguments)(self, *arguments, **options)

    @property
    def rank(self) -> int:
        """The number of this process, 0 <= rank < size."""
        return self._rank

    @property
    def size(self) -> int:
        """The number of ranks at creation, without spares. Deaths do not change it: see `members`."""
        return self._size

    @property
    def ranks_per_node(self) -> int:
        """The number of ranks of the largest node; 1 if every rank is a node of its own."""
        return max(Counter(self._context.nodes).values())

    @property
    def nodes(self) -> tuple[int, ...]:
        """The node of each member, in the order of `members`; nodes are numbered in the order of their lowest ranks."""
        return self._context.nodes

    @property
    def mpi_comm(self) -> MPI.Comm:
        """The MPI communicator of the members, initially the one passed in; `RuntimeError` if ranks are threads."""
        if self._comm is None:
            raise RuntimeError("this communicator connects threads of one process, and has no MPI communicator")
        return self._comm

    @property
    def timeout(self) -> float | None:
        """Default time limit of calls that wait, in seconds; None for no limit."""
        return self._context.timeout

    @property
    def costs(self) -> Costs | None:
        """Costs of messages between nodes, as `algorithm="auto"` uses them; None if it uses a measured table."""
        return self._context.costs

    @property
    def progress(self) -> str:
        """How messages move while no call waits: "thread" or "caller"."""
        return self._engine.progress

    @property
    def transport(self) -> str:
        """The transport of messages: "mpi" or "loopback"."""
        return self._engine.transport

    @property
    def name(self) -> str:
        """The name of the MPI communicator from which this one was made; "loopback" among threads."""
        return "loopback" if self._comm is None else self._comm.Get_name()

    @property
    def open(self) -> tuple[Collective[Any], ...]:
        """The collectives that this rank has not left, in the order of creation."""
        return self._context.open

    @property
    def closed(self) -> bool:
        """Whether this rank has closed or left the communicator."""
        return self._context.rendezvous.closed

    @property
    def failed(self) -> Exception | None:
        """The exception that made the communicator unusable and that further calls raise; None if usable or closed."""
        if self.closed:
            return None
        if self._membership is not None and self._membership.failed is not None:
            return self._membership.failed
        try:
            self._engine.check_usable()
        except Exception as error:
            continues = self._membership is not None and isinstance(error, RankFailedError)
            return None if continues else error
        return None

    def statistics(self) -> CommunicatorStatistics:
        """Return this rank's counters, summed over the open collectives; local, without communication."""
        each = [collective.statistics() for collective in self.open]
        return CommunicatorStatistics(
            open=len(each),
            preduce_cache=means.plan_cache(self),
            waited=sum((one.waited for one in each), 0.0),
            memory_bytes=sum(one.memory_bytes for one in each),
        )

    def advance(self) -> bool:
        """Move messages without waiting, for `progress="caller"`; return True if any progress was made."""
        return self._engine.advance()

    def flight_record(self) -> dict[str, Any]:
        """Return this rank's record of the newest rounds and of its current waits, as plain data for JSON.

        The record has the last `PYC_FLIGHT_ROUNDS` (default 256) rounds of all collectives together. Any thread may
        call this at any time. docs/tutorial.md, "When it hangs", explains the keys.

        >>> import numpy as np, pycollectives as pc
        >>> from mpi4py import MPI
        >>> with pc.Communicator(MPI.COMM_SELF) as comm:
        ...     ar = comm.partial_allreduce(np.ones(3))
        ...     _ = ar.allreduce(np.ones(3))
        ...     comm.flight_record()["rounds"][0]["contributors"]
        [0]
        """
        record: dict[str, Any] = json.loads(self._engine.flight_record())
        return record

    def agree(self, call: str, check: Callable[[], SignedT], *, timeout: float | None = None) -> SignedT:
        """Check that all ranks make the same call with the same arguments; collective.

        Use it in your own collective calls. A mistake on one rank is then an error on all ranks, before anything else
        is sent. Threads of a rank take turns.

        Parameters
        ----------
        call
            The name of the call, for messages, such as "train".
        check
            Checks this rank's arguments, and returns an object whose `signature()` must be the same on all ranks: a
            mapping of names to strings, numbers or None. If it raises, the call raises that error here after the other
            ranks have received it.
        timeout
            Seconds; None for the communicator's default, `math.inf` for no limit.

        Returns
        -------
        Signed
            The object that `check` returned.

        Raises
        ------
        MismatchError
            Signatures differ between ranks, another rank's `check` raised, or another rank makes a different call. All
            ranks raise it; the message gives ranks and values.
        StallError
            Some ranks do not make this call in time. No collective can be made on this communicator afterwards.
        ClosedError
            The communicator is closed.
        """
        self._context.check_flushed(call)
        with self._context.limited(timeout):
            return self._context.agree(call, check)

    def flush(self, *, timeout: float | None = None) -> None:
        """Flush all open collectives, in the order of creation; collective.

        Parameters
        ----------
        timeout
            Seconds for all collectives together; None for the communicator's default, `math.inf` for no limit.

        Raises
        ------
        StallError
            Some ranks have neither flushed nor left in time; the message names them. Call `flush` again to continue.
        ClosedError
            The communicator is closed.
        """
        self._context.rendezvous.check_open()
        self._context.flush(Deadline(self._context.limit(timeout)))

    def leave(self) -> None:
        """Leave the open collectives and the communicator, without waiting for other ranks.

        This rank's pending data is still delivered: its engine serves the other ranks until all ranks have closed or
        the process ends. Leaving again does nothing.
        """
        if self.closed or not self._engine.in_own_process:
            return
        calls.end_newcomer(self)
        with contextlib.ExitStack() as ending:  # do all of these, even if one raises
            ending.callback(self._end)
            ending.callback(self._engine.abort)
            ending.callback(self._context.checks.leave)
            self._context.leave()

    def close(self, *, timeout: float | None = None) -> None:
        """Flush and close the open collectives, in the order of creation, and wait for all ranks; collective.

        Parameters
        ----------
        timeout
            Seconds for the whole call; None for the communicator's default, `math.inf` for no limit.

        Raises
        ------
        StallError
            Some ranks have not closed in time; the message names them. The communicator stays open: call `close` again
            to continue, or `abort`.
        MismatchError
            With `PYC_CHECK=1`: ranks make different calls, or a round differed between ranks. The communicator stays
            open, without checks.
        RuntimeError
            The update function of a parameter server on this rank has raised. The communicator is closed.
        """
        if self.closed:
            return
        deadline = Deadline(self._context.limit(timeout))
        with self._context.rendezvous.closing(deadline):
            if self.closed:  # by another thread
                return
            self._context.close(deadline)
            self._context.checks.finish(deadline.remaining())
            calls.close_engine(self, deadline)
            self._end()
        self._context.check_closed()

    def abort(self) -> int:
        """Close at once, without waiting for other ranks; return the number of discarded contributions.

        Until the process ends, this rank's engine serves the rounds of the other ranks, in which this rank is absent.
        """
        if self.closed or not self._engine.in_own_process:
            return 0
        calls.end_newcomer(self)
        with contextlib.ExitStack() as ending:  # do all of these, even if one raises
            ending.callback(self._end)
            ending.callback(self._engine.abort)
            ending.callback(self._context.checks.leave)
            return self._context.abort()

    def _end(self) -> None:
        self._context.rendezvous.close()
        open_communicators.pop(self, None)
        if self._membership is not None:
            self._membership.end()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self._context.open)} open"
        return f"<Communicator rank {self._rank} of {self._size}, {state}>"

    def __enter__(self) -> Self:
        self._context.rendezvous.check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the communicator; after an exception, abort it and warn about discarded data."""
        can_lose = any(collective.discards for collective in self._context.open)
        exit_context(repr(self), kind, self, self._context, is_open=can_lose)
