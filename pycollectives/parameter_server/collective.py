"""The parameter server: weights that all workers change by their gradients, each when it has one."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..collective import WithoutFlush
from ..support import buffers
from ..support.deadline import Deadline
from ..support.validation import with_prefix
from .arguments import ServerSpecification
from .sync import BSP, MindFlayer
from .update import UpdateRule
from .update_thread import UpdateThread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import numpy as np
    from typing_extensions import Self

    from .. import _core
    from ..context import Context
    from ..support.typing import BufferSpec
    from .sync import Synchronization

__all__ = ["ParameterServer", "PushInfo", "PushRequest", "ServerStatistics", "WorkerStatistics"]


@dataclass(frozen=True)
class PushInfo:
    """How a push came out.

    Attributes
    ----------
    clock
        The number of the push, from 1.
    version
        Updates of the weights when the worker was let go.
    staleness
        Updates between the weights that the worker had and its push.
    used
        Whether the gradient has its part in an update, or will have; else it was discarded.
    """

    clock: int
    version: int
    staleness: int
    used: bool


@dataclass(frozen=True)
class WorkerStatistics:
    """What a worker has done.

    Attributes
    ----------
    rank
        Which.
    pushes
        Gradients that have come.
    discarded
        Of them.
    given_up
        Trials that it has given up, and pushes without effect under nan="skip".
    waiting
        Seconds from its pushes until it was let go.
    present
        Whether it takes part: not after `leave`, nor if it has been taken out as missing.
    """

    rank: int
    pushes: int
    discarded: int
    given_up: int
    waiting: float
    present: bool


@dataclass(frozen=True)
class ServerStatistics:
    """What the server has counted.

    Attributes
    ----------
    version
        Updates of the weights.
    workers
        One entry for each worker, by rank.
    staleness
        Pushes by their staleness: of 0, 1, 2, ... updates. The last entry counts all that are as old or older.
    superstep
        Barriers.
    supersteps
        Of the last 256: seconds from the barrier before, and the longest wait for it.
    """

    version: int
    workers: tuple[WorkerStatistics, ...]
    staleness: tuple[int, ...]
    superstep: int
    supersteps: tuple[tuple[float, float], ...]


class PushRequest:
    """A push under way: done when its worker may go on. `ParameterServer.push` returns it.

    Attributes
    ----------
    clock
        The number of the push, from 1.
    """

    def __init__(self, collective: _core.ParameterServer, clock: int, context: Context) -> None:
        """For `ParameterServer`."""
        self._collective = collective
        self._context = context
        self.clock = clock

    def test(self) -> bool:
        """Return whether the worker may go on: a `pull` then waits for no other worker."""
        return self._collective.test(self.clock)

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the worker may go on.

        Parameters
        ----------
        timeout
            Seconds; None for the communicator's default, `math.inf` for no limit.

        Raises
        ------
        StallError
            It may not go on in time: names the ranks whose pushes are missing.
        """
        self._collective.wait(self.clock, timeout=self._context.limit(timeout))

    Test = test
    Wait = wait

    @property
    def default_timeout(self) -> float | None:
        """The communicator's default limit."""
        return self._context.timeout

    def __repr__(self) -> str:
        """Show which push it is."""
        return f"<PushRequest {self.clock}>"


class ParameterServer(WithoutFlush):
    """Weights in one place, which workers change by gradients; made by `Communicator.parameter_server`.

    A worker pulls the weights, computes a gradient, and pushes it. When the gradient is used, and when the worker may
    go on, is that of `sync`. (Zhao et al., "ElasticBSP: elastic bulk synchronous parallel", Machine Learning, 2021.)

    One thread at a time. Workers may make different numbers of pushes: nobody waits for one that has closed it.

    >>> import numpy as np, pycollectives as pc
    >>> from pycollectives.testing import run_ranks
    >>> def program(comm):
    ...     w = np.zeros(3)
    ...     with comm.parameter_server(like=w, sync=pc.BSP(), update=pc.SGD(0.5), servers="node") as ps:
    ...         for step in range(4):
    ...             ps.push_pull(np.full(3, float(comm.rank)), w)  # the gradients' mean is 1
    ...     return w.tolist()
    >>> run_ranks(3, program)[0]
    [-2.0, -2.0, -2.0]
    """

    _specification: ServerSpecification

    def __init__(
        self, specification: ServerSpecification, like: BufferSpec, context: Context, deadline: Deadline
    ) -> None:
        """Make the engine's collective; collective."""
        from ..support.native import core

        self._specification = specification
        self._context = context
        self._pulled = time.monotonic()
        self._has_left = False
        weights = buffers.matching_array(like, specification.buffer, exact_shape=False)
        self._collective: _core.ParameterServer = core.ParameterServer(
            context.engine,
            weights=buffers.as_bytes_exporter(weights),
            call=self._shaped_update(),
            nodes=context.nodes,
            timeout=deadline.remaining(),
            **specification.engine_arguments(),
        )
        if (calls := self._collective.update_calls) is not None:
            thread = UpdateThread(calls, specification.name)
            context.when_closed(thread.check)

    @classmethod
    def create(
        cls,
        context: Context,
        /,
        *,
        like: BufferSpec,
        sync: Synchronization | str | None = None,
        update: UpdateRule | Callable[..., Any] | None = None,
        servers: int | Iterable[int] | str = 1,
        workers: Iterable[int] | None = None,
        nan: str = "reject",
        name: str | None = None,
    ) -> Self:
        """Make one, by the arguments of `Communicator.parameter_server`; collective."""

        def check() -> ServerSpecification:
            return ServerSpecification.checked(
                like,
                sync=BSP() if sync is None else sync,
                update=update,
                servers=servers,
                workers=workers,
                nan=nan,
                name=context.default_name("parameter_server") if name is None else name,
                nodes=context.nodes,
            )

        return context.make("parameter_server", check, lambda agreed, deadline: cls(agreed, like, context, deadline))

    def _shaped_update(self) -> Callable[..., None] | None:
        function = self._specification.update
        if function is None or isinstance(function, UpdateRule):
            return None
        update = function
        shape = self._specification.buffer.shape if len(self._specification.servers) == 1 else -1

        def call(weights: np.ndarray[Any, Any], gradient: np.ndarray[Any, Any]) -> None:
            update(weights.reshape(shape), gradient.reshape(shape))

        return call

    # --- workers

    def push(self, gradient: BufferSpec) -> PushRequest:
        """Hand a gradient over; for workers. Does not wait for other workers, unless the push before does.

        With servers="node" it comes behind the updates before it. If they take longer than the communicator's default
        limit, since a rank is stopped in one, it returns nonetheless: the push counts, and is done when they go on.

        Parameters
        ----------
        gradient
            C-contiguous host memory of the shape and dtype of `like`; under `EAMSGD` the weights. It may be changed at
            once.

        Returns
        -------
        PushRequest
            Done when the worker may go on.

        Raises
        ------
        ValueError, TypeError, BufferError
            Wrong shape; wrong dtype, or no buffer; not contiguous; values that are not finite, under nan="reject"; this
            rank is no worker. Nothing is sent.
        StallError
            The worker may not go on after the push before in time. Nothing is sent.
        RankFailedError
            Ranks have died: names them.
        RuntimeError
            Another thread is in a call of this object; or the update is a function, which has raised on a server.
        ClosedError
            After `close`.
        """
        array = self._given("push", gradient)
        self._has_left = False
        clock = self._collective.push(buffers.as_bytes_exporter(array), timeout=self._context.timeout)
        return PushRequest(self._collective, clock, self._context)

    def pull(self, out: BufferSpec, timeout: float | None = None) -> None:
        """Get the weights; for all ranks.

        A worker gets them when it may go on after its push: weights of at least the version then. Other ranks, and a
        worker that has left or not pushed, get the newest. Each shard is as of one moment. Shards of several servers
        may be some updates apart, but not for a worker that takes part under BSP.

        Parameters
        ----------
        out
            Writable C-contiguous host memory of the count and dtype of `like`.
        timeout
            Seconds; None for the communicator's default, `math.inf` for no limit.

        Raises
        ------
        ValueError, TypeError, BufferError, RankFailedError, RuntimeError, ClosedError
            As `push`.
        StallError
            Not in time: names the ranks whose pushes are waited for. It may be called again.
        """
        array = self._taken("pull", out)
        deadline = Deadline(self._context.limit(timeout))
        newest = self._newest_version(deadline.remaining()) if self._takes_no_part() else 0
        self._collective.pull(buffers.as_bytes_exporter(array), timeout=deadline.remaining())
        while self.version < newest:
            self._collective.pull(buffers.as_bytes_exporter(array), timeout=deadline.remaining())
        self._pulled = time.monotonic()

    def push_pull(self, gradient: BufferSpec, out: BufferSpec, timeout: float | None = None) -> None:
        """Push a gradient and get the weights when the worker may go on; for workers.

        Both happen in one pass where the gradient is an update and all servers are on this rank's node.

        Parameters
        ----------
        gradient, out
            As of `push` and `pull`. They may be the same, but not overlap in part.
        timeout
            Seconds, for each of the two; None for the communicator's default, `math.inf` for no limit.

        Raises
        ------
        ValueError, TypeError, BufferError, RankFailedError, RuntimeError, ClosedError
            As `push`.
        StallError
            Not in time: names the ranks whose pushes, or work on the weights, are waited for. If `clock` has grown the
            push counts, and `pull` goes on. The same holds for an interrupt.
        """
        given, taken = self._given("push_pull", gradient), self._taken("push_pull", out)
        self._has_left = False
        self._collective.push_pull(
            buffers.as_bytes_exporter(given), buffers.as_bytes_exporter(taken), timeout=self._context.limit(timeout)
        )
        self._pulled = time.monotonic()

    def give_up(self) -> PushRequest:
        """Push nothing: this trial is given up (`MindFlayer`), but others need not wait for it; for workers.

        Raises
        ------
        ValueError
            The synchronization is not `MindFlayer`: no other has trials; or this rank is no worker.
        StallError, RankFailedError, RuntimeError, ClosedError
            As `push`.
        """
        self._check_worker("give_up")
        sync = self._specification.sync
        if not isinstance(sync, MindFlayer):
            raise ValueError(f"{self.name!r}: give_up: expected the synchronization MindFlayer, got {sync}")
        self._has_left = False
        clock = self._collective.give_up(timeout=self._context.timeout)
        return PushRequest(self._collective, clock, self._context)

    def is_in_time(self) -> bool:
        """Whether this worker's trial is within the time that `MindFlayer` allots to it; else True; for workers."""
        self._check_worker("is_in_time")
        sync = self._specification.sync
        if not isinstance(sync, MindFlayer):
            return True
        each = sync.engine_arguments()["allotted"]  # of each worker, or one of all
        allotted: float = each[self._specification.workers.index(self._context.rank)] if len(each) > 1 else each[0]
        return time.monotonic() - self._pulled <= allotted

    def leave(self) -> None:
        """Take no part until the next push, so that nobody waits for this worker; for workers.

        All that this worker has pushed has come to the server when it returns. A gradient is discarded then if it was
        computed on weights of before; it counts on weights pulled since.

        Raises
        ------
        ValueError, RankFailedError, RuntimeError, ClosedError
            As `push`.
        """
        self._check_worker("leave")
        self._collective.leave()
        self._has_left = True
        self._newest_version(self._context.timeout)

    # --- what is known

    @property
    def clock(self) -> int:
        """This rank's pushes, those that were given up included."""
        return self._collective.clock

    @property
    def version(self) -> int:
        """Updates in the weights that this rank has been given last; of several shards the oldest's."""
        return self._collective.version

    @property
    def last_push(self) -> PushInfo | None:
        """How the newest push came out after which this worker was let go; None: there is none.

        Raises
        ------
        RuntimeError
            Another thread is in a call of this object.
        """
        if self._context.rank not in self._specification.workers:
            return None
        clock, version, staleness, used = self._collective.outcome
        return PushInfo(clock, version, staleness, used) if clock else None

    def statistics(self, timeout: float | None = None) -> ServerStatistics:
        """Return what the server has counted, of all workers; for all ranks.

        Parameters
        ----------
        timeout
            Seconds; None for the communicator's default, `math.inf` for no limit.
        """
        counted = self._collective.statistics(timeout=self._context.limit(timeout))
        return ServerStatistics(
            version=counted["version"],
            workers=tuple(
                WorkerStatistics(rank, pushes, discarded, given_up, waiting, presence == 0)
                for rank, pushes, discarded, given_up, waiting, presence in counted["workers"]
            ),
            staleness=tuple(counted["staleness"]),
            superstep=counted["superstep"],
            supersteps=tuple(counted["supersteps"]),
        )

    @property
    def is_server(self) -> bool:
        """Whether this rank has a shard that it serves."""
        return self._context.rank in self.servers

    @property
    def servers(self) -> tuple[int, ...]:
        """The ranks that serve; none if whoever pushes updates the weights itself."""
        return () if self._specification.direct else self._specification.servers

    @property
    def workers(self) -> tuple[int, ...]:
        """The ranks that push."""
        return self._specification.workers

    @property
    def sync(self) -> Synchronization:
        """When gradients are used, and who goes on."""
        return self._specification.sync

    @property
    def update(self) -> UpdateRule | Callable[..., Any] | None:
        """How gradients change the weights; None under `EAMSGD`."""
        return self._specification.update

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type of the weights."""
        return self._specification.buffer.dtype

    @property
    def count(self) -> int:
        """Elements of the weights."""
        return self._specification.buffer.count

    def _takes_no_part(self) -> bool:
        """Whether no update waits for this rank, so that it does not know of the newest by itself."""
        return self._context.rank not in self._specification.workers or self._has_left

    def _newest_version(self, limit: float | None) -> int:
        """Return the updates decided on once all that this rank has sent has come to the server."""
        if self._specification.direct:
            return 0  # each call has come when it returns
        version: int = self._collective.statistics(timeout=limit)["version"]
        return version

    def _given(self, call: str, gradient: BufferSpec) -> np.ndarray[Any, Any]:
        self._check_worker(call)
        try:
            return buffers.matching_array(gradient, self._specification.buffer)
        except (ValueError, TypeError, BufferError) as error:
            raise with_prefix(error, self.name) from None

    def _taken(self, call: str, out: BufferSpec) -> np.ndarray[Any, Any]:
        try:
            return buffers.writable_array(out, self._specification.buffer)
        except (ValueError, TypeError, BufferError) as error:
            raise with_prefix(error, f"{self.name}: {call}") from None

    def _check_worker(self, call: str) -> None:
        if self._context.rank not in self._specification.workers:
            raise ValueError(
                f"{self.name}: {call} is for workers, {list(self._specification.workers)}; this is rank "
                f"{self._context.rank}"
            )

    def __repr__(self) -> str:
        """Show what it is and whether it is closed."""
        where = "in the node's memory" if self._specification.direct else f"on ranks {list(self.servers)}"
        state = " closed" if self.closed else ""
        return f"<ParameterServer {self.name!r} of {self.count} {self.dtype} {where}, {self.sync!r}{state}>"
