"""The communicator: one rank's engine on a group of ranks, and the collectives that are open on it."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from .agreement import fingerprint, shrinking
from .agreement.checking import Checks, NoChecks
from .agreement.consistency import Signed
from .agreement.options import Options, naming_failed_ranks, turn_on
from .at_exit import open_communicators
from .collective import CommunicatorStatistics, creates
from .context import Context
from .hop.arguments import HopArguments, TokenQueueArguments, UpdateQueueArguments
from .hop.collective import Hop
from .hop.token_queue import TokenQueue
from .hop.update_queue import UpdateQueue
from .neighbor_averaging.arguments import NeighborAveragingArguments, PairwiseArguments, PushSumArguments
from .neighbor_averaging.d_psgd import NeighborAveraging
from .neighbor_averaging.pairwise import PairwiseAveraging
from .neighbor_averaging.push_sum import PushSum
from .partial_allreduce.arguments import PartialAllreduceArguments
from .partial_allreduce.collective import PartialAllreduce
from .partial_reduce import means
from .partial_reduce.arguments import PartialReduceArguments
from .partial_reduce.collective import PartialReduce
from .selection.tables import is_tuned
from .servers.arguments import ParameterServerArguments
from .servers.collective import ParameterServer
from .support.costs import REDUCE_PER_BYTE, Costs
from .support.deadline import Deadline
from .support.environment import checked_ranks_per_node
from .support.lifecycle import exit_context
from .support.nodes import farthest_of, has_core_per_rank, neighbours_of, nodes_of, ranks_of_kernel
from .support.validation import checked_timeout

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from mpi4py import MPI
    from typing_extensions import Self

    from . import _core
    from .collective import Collective
    from .support.nodes import Place
    from .support.typing import Progress

__all__ = ["Communicator"]

SignedT = TypeVar("SignedT", bound=Signed)
CollectiveT = TypeVar("CollectiveT", bound="Collective[Any]")


class Communicator:
    """A group of ranks with an engine that works in the background; made and closed by all of them (collective).

    The messages of this package go over duplicates of the communicator given, so that they never meet the user's.

    With `PYC_CHECK=1` in the environment ranks compare what they call and what rounds gave them: for debugging.

    As a context manager it flushes and closes what is open, in the order of creation, and waits until every rank has
    closed everything. If the block raises, it closes at once, without waiting for other ranks. A `RuntimeWarning`
    says how much data is discarded; the other ranks go on without this one.

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
        Seconds: the limit of every call that waits for other ranks and is given no `timeout` of its own, of creating,
        waiting, flushing and closing alike. `math.inf`: no limit. Default: `PYC_TIMEOUT`, or no limit.
    costs
        What messages between nodes cost, for `algorithm="auto"`. Default: if there are several nodes, every rank has a
        core, and no table was made by `python -m pycollectives tune`, two ranks measure it with 80 messages. A table of
        `tune`, if there is one, goes before costs, also before those that are given.

    Raises
    ------
    ValueError, TypeError
        An argument or an environment variable is refused; no communicator, or an intercommunicator.
    RuntimeError
        MPI is not initialised, is finalised, or its thread level is too low.
    MismatchError
        Another rank's arguments were refused, or `ranks_per_node`, `PYC_CHECK` or `PYC_HEARTBEAT_TIMEOUT` differ
        between ranks.
    StallError
        Some ranks do not make it within the time limit.

    >>> import numpy as np, pycollectives as pc
    >>> from mpi4py import MPI
    >>> with pc.Communicator(MPI.COMM_SELF) as comm:
    ...     total = comm.partial_allreduce(np.zeros(3))
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
        costs: Costs | None = None,
    ) -> None:
        """See the class."""
        self._open(comm, (progress, ranks_per_node, timeout, costs))

    def _open(self, comm: MPI.Comm, arguments: tuple[Any, ...], limit: float | None = None) -> None:
        """`limit`: seconds to wait for the other ranks, if not as the arguments say."""
        from .support.native import core

        self._arguments = arguments
        with turn_on(comm), naming_failed_ranks(comm):
            options, places = Options.agreed(comm, *arguments, is_tuned=is_tuned, limit=limit)
            machines = [place.machine for place in places]
            make_engine = partial(
                core.Engine.mpi,
                comm,
                local_ranks=ranks_of_kernel(machines, comm.rank),
                neighbours=neighbours_of(places, comm.rank),
                progress=options.progress,
                exit_timeout=options.exit_timeout,
            )
            engine = make_engine()
            check_engine = None
            try:
                check_engine = make_engine() if options.check else None
                if options.heartbeat_timeout is not None:
                    engine.start_heartbeat(machines=nodes_of(machines, None), limit=options.heartbeat_timeout)
                nodes = nodes_of(machines, options.ranks_per_node)
                limit = options.timeout if limit is None else limit
                agreed = options.costs or _measured_costs(engine, nodes, places, limit)
            except BaseException:
                for made in (engine, check_engine):
                    if made is not None:
                        made.abort()
                        made.supersede()
                raise
        self._start(engine, comm, nodes, options.timeout, check_engine, agreed)

    def _remade(self, comm: MPI.Comm, limit: float | None) -> Communicator:
        """Make one with the arguments of this one; collective over `comm`."""
        return self._made_within(comm, limit, self._arguments)

    @staticmethod
    def _made_within(
        comm: MPI.Comm, limit: float | None, arguments: tuple[Any, ...] = (None, None, None, None)
    ) -> Communicator:
        """Make one whose creation has a limit of its own; collective over `comm`."""
        made = Communicator.__new__(Communicator)
        made._open(comm, arguments, limit)
        return made

    def _supersede(self) -> None:
        """Its survivors have another communicator: that it failed is not reported at the end of the program."""
        for engine in self._engines:
            engine.supersede()

    @classmethod
    def from_engine(
        cls,
        engine: _core.Engine,
        *,
        ranks_per_node: int | Literal["all"] = "all",
        timeout: float | None = None,
        check_engine: _core.Engine | None = None,
        costs: Costs | None = None,
    ) -> Self:
        """Wrap an engine that is not on MPI, and one for checks: see `pycollectives.testing.loopback`."""
        self = cls.__new__(cls)
        nodes = nodes_of(["this process"] * engine.size, checked_ranks_per_node(ranks_per_node))
        self._start(engine, None, nodes, checked_timeout(timeout), check_engine, costs)
        return self

    def _start(
        self,
        engine: _core.Engine,
        comm: MPI.Comm | None,
        nodes: list[int],
        timeout: float | None,
        check_engine: _core.Engine | None,
        costs: Costs | None,
    ) -> None:
        self._engine = engine
        self._comm = comm
        self._rank = engine.rank
        self._size = engine.size
        self._engines = [engine] if check_engine is None else [engine, check_engine]
        self._shrinking: shrinking.Shrinking | None = None
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
    preduce = means.preduce
    mean = means.mean
    is_same_on_all_ranks = fingerprint.is_same_on_all_ranks
    shrink = shrinking.shrink

    def create(self, kind: type[CollectiveT], *arguments: Any, **options: Any) -> CollectiveT:
        """Make a collective of any kind; collective. For services that have no method of their own here.

        Parameters
        ----------
        kind
            A class derived from `pycollectives.collective.Collective`.
        arguments, options
            Those of `kind.arguments`.

        Raises
        ------
        ValueError, TypeError, BufferError, MismatchError, StallError, RuntimeError, ClosedError
            As `partial_allreduce`.
        """
        return creates(kind, kind.arguments)(self, *arguments, **options)

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
        return max(Counter(self._context.nodes).values())

    @property
    def nodes(self) -> tuple[int, ...]:
        """The node of each rank; nodes are numbered in the order of their lowest ranks."""
        return self._context.nodes

    @property
    def mpi_comm(self) -> MPI.Comm:
        """The communicator that this one was made from."""
        if self._comm is None:
            raise RuntimeError("this communicator joins threads of one process: there is no MPI communicator under it")
        return self._comm

    @property
    def timeout(self) -> float | None:
        """Seconds: the limit of calls that wait and are given none; None: there is no limit."""
        return self._context.timeout

    @property
    def costs(self) -> Costs | None:
        """What messages between nodes cost, as `algorithm="auto"` uses it; None: it uses a table that was measured."""
        return self._context.costs

    @property
    def progress(self) -> str:
        """Who moves messages while no call waits: "thread" or "caller"."""
        return self._engine.progress

    @property
    def transport(self) -> str:
        """What carries messages: "mpi" or "loopback"."""
        return self._engine.transport

    @property
    def name(self) -> str:
        """That of the MPI communicator that it was made from; "loopback" among threads."""
        return "loopback" if self._comm is None else self._comm.Get_name()

    @property
    def open(self) -> tuple[Collective[Any], ...]:
        """The collectives that this rank has not left, in the order of creation."""
        return self._context.open

    @property
    def closed(self) -> bool:
        """Whether this rank has closed it, or left."""
        return self._context.rendezvous.closed

    @property
    def failed(self) -> Exception | None:
        """The exception that made it unusable, which further calls raise; None: it is usable, or closed."""
        if self.closed:
            return None
        try:
            self._engine.check_usable()
        except Exception as error:
            return error
        return None

    def statistics(self) -> CommunicatorStatistics:
        """Return what this rank has counted, of what is open; local, without communication."""
        each = [collective.statistics() for collective in self.open]
        return CommunicatorStatistics(
            open=len(each),
            preduce_cache=means.plan_cache(self),
            waited=sum((one.waited for one in each), 0.0),
            memory_bytes=sum(one.memory_bytes for one in each),
        )

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
        ...     ar = comm.partial_allreduce(np.ones(3))
        ...     _ = ar.allreduce(np.ones(3))
        ...     comm.flight_record()["rounds"][0]["contributors"]
        [0]
        """
        record: dict[str, Any] = json.loads(self._engine.flight_record())
        return record

    def agree(self, call: str, check: Callable[[], SignedT], *, timeout: float | None = None) -> SignedT:
        """Compare the arguments of a call that is built on this communicator; collective.

        For calls that need all ranks with the same arguments: a mistake on one rank is an error on all of them, before
        anything else is sent. Threads of a rank take turns.

        Parameters
        ----------
        call
            What ranks call, for messages: "train".
        check
            Checks this rank's arguments, and returns something whose `signature()` must be the same on all ranks: a
            mapping of names to texts, numbers or None. What it raises is raised here, after the others got it.
        timeout
            Seconds; None for the communicator's default, `math.inf` for no limit.

        Returns
        -------
        Signed
            What `check` returned.

        Raises
        ------
        MismatchError
            Signatures differ between ranks, another rank's `check` raised, or another rank makes another call; names
            ranks and values. On all ranks.
        StallError
            Some ranks do not make this call in time; no collective can be made on it afterwards.
        ClosedError
            The communicator is closed.
        """
        self._context.check_flushed(call)
        with self._context.limited(timeout):
            return self._context.rendezvous.agree(call, check)

    def flush(self, *, timeout: float | None = None) -> None:
        """Deliver everything that any rank handed over to what is open, in the order of creation; collective.

        Parameters
        ----------
        timeout
            Seconds for all of it; None for the communicator's default, `math.inf` for no limit.

        Raises
        ------
        StallError
            Some ranks have neither flushed nor left; names them. Call it again to go on.
        ClosedError
            The communicator is closed.
        """
        self._context.rendezvous.check_open()
        self._context.flush(Deadline(self._context.limit(timeout)))

    def leave(self) -> None:
        """Leave what is open and the communicator, without waiting for other ranks.

        What this rank handed over is still delivered: the engine serves the others until the process ends, or all have
        closed. Leaving again does nothing.
        """
        if self.closed or not self._engine.in_own_process:
            return
        with contextlib.ExitStack() as ending:  # all of it, also if a collective raises
            ending.callback(self._end)
            ending.callback(self._engine.abort)
            ending.callback(self._context.checks.leave)
            self._context.leave()

    def close(self, *, timeout: float | None = None) -> None:
        """Flush and close what is open, in the order of creation, and wait for all ranks to do so; collective.

        Parameters
        ----------
        timeout
            Seconds for all of it; None for the communicator's default, `math.inf` for no limit.

        Raises
        ------
        StallError
            Names the ranks that have not closed. The communicator stays open: call again, or `abort`.
        MismatchError
            With `PYC_CHECK=1`: ranks make different calls, or a round was not the same on all. The communicator stays
            open here too, without checks.
        RuntimeError
            The function of a parameter server that this rank served has raised. The communicator is closed.
        """
        if self.closed:
            return
        deadline = Deadline(self._context.limit(timeout))
        with self._context.rendezvous.closing(deadline):
            if self.closed:  # by another thread
                return
            self._context.close(deadline)
            self._context.checks.finish(deadline.remaining())
            self._engine.close(timeout=deadline.remaining())
            self._end()
        self._context.check_closed()

    def abort(self) -> int:
        """Close at once, without waiting for other ranks; the number of contributions that are discarded.

        The engine serves the other ranks' rounds, with this rank absent, until the process ends.
        """
        if self.closed or not self._engine.in_own_process:
            return 0
        with contextlib.ExitStack() as ending:  # all of it, also if a collective raises
            ending.callback(self._end)
            ending.callback(self._engine.abort)
            ending.callback(self._context.checks.leave)
            return self._context.abort()

    def _end(self) -> None:
        self._context.rendezvous.close()
        open_communicators.pop(self, None)

    def __repr__(self) -> str:
        """Show the rank and what is open."""
        state = "closed" if self.closed else f"{len(self._context.open)} open"
        return f"<Communicator rank {self._rank} of {self._size}, {state}>"

    def __enter__(self) -> Self:
        """Return itself."""
        self._context.rendezvous.check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close; after an exception close at once and warn of what is discarded."""
        can_lose = any(collective.discards for collective in self._context.open)
        exit_context(repr(self), kind, self, self._context, is_open=can_lose)


def _measured_costs(engine: _core.Engine, nodes: list[int], places: list[Place], timeout: float | None) -> Costs | None:
    """Return what messages between nodes cost, the same on all ranks; None: a table serves. Collective."""
    from .support.native import core

    other = farthest_of(nodes, places)
    if other is None or not has_core_per_rank(places) or any(place.tuned for place in places):
        return None
    latency, overhead, gap_per_byte = core.measure_messages(engine, other=other, timeout=timeout)
    return Costs(latency, overhead, gap_per_byte, REDUCE_PER_BYTE)
