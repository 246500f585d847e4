"""The parameter server: shared weights, to which each worker pushes its gradients when they are ready."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, cast

from ..collective import Collective
from ..request import Request
from ..support import buffers
from ..support.deadline import Deadline
from ..support.errors import StallError
from .arguments import ParameterServerArguments
from .continuing import ContinuingServer
from .statistics import ParameterServerStatistics, PushInfo, ServerStatistics, WorkerStatistics
from .sync import MindFlayer
from .update import UpdateRule
from .update_thread import UpdateThread

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from .. import _core
    from ..context import Context
    from ..support.typing import BufferSpec
    from .sync import Synchronization


class PushRequest(Request):
    """A pending push, done when its worker may continue; returned by `ParameterServer.push`.

    Attributes
    ----------
    clock
        The number of the push, from 1.
    """

    def __init__(self, server: ParameterServer, clock: int) -> None:
        self._server = server
        self._info: PushInfo | None = None
        self.clock = clock

    def test(self) -> bool:
        """Return True if the worker may continue: a `pull` then waits for no other worker."""
        return self._info is not None or self._server._collective.test(self.clock)

    def wait(self, *, timeout: float | None = None) -> PushInfo:
        """Wait until the worker may continue.

        Parameters
        ----------
        timeout
            As for `ParameterServer.push`.

        Returns
        -------
        PushInfo
            Describes the outcome of the push.

        Raises
        ------
        StallError
            The worker was not released in time; the message names the ranks whose pushes are missing. You may wait
            again.
        RankFailedError, RuntimeError, ClosedError
            As for `ParameterServer.push`.
        """
        if self._info is None:
            self._server._collective.wait(self.clock, timeout=self._server._context.limit(timeout))
            self._info = PushInfo(*self._server._collective.outcome)
        return self._info

    @property
    def default_timeout(self) -> float | None:
        """The communicator's default time limit, in seconds; None for no limit."""
        return self._server._context.timeout

    def __repr__(self) -> str:
        return f"<PushRequest {self.clock} of {self._server.name!r}>"


class ParameterServer(Collective[ParameterServerArguments]):
    """Shared weights, to which workers push gradients; made by `Communicator.parameter_server`.

    A worker pulls the weights, computes a gradient, and pushes it. `sync` decides when the gradient is used and when
    the worker may continue. (Zhao et al., "ElasticBSP: elastic bulk synchronous parallel", Machine Learning, 2021.)

    Only one thread at a time may call this object. Workers may make different numbers of pushes: no worker waits for a
    worker that has left. `flush` waits until all pushes of this rank have arrived at the server.

    >>> import numpy as np, pycollectives as pc
    >>> from pycollectives.testing import run_ranks
    >>> def program(comm):
    ...     w = np.zeros(3)
    ...     with comm.parameter_server(w, sync="bsp", update=pc.servers.SGD(0.5), servers="node") as ps:
    ...         for step in range(4):
    ...             ps.push_pull(np.full(3, float(comm.rank)), w)  # the gradients' mean is 1
    ...     return w.tolist()
    >>> run_ranks(3, program)[0]
    [-2.0, -2.0, -2.0]
    """

    arguments = ParameterServerArguments
    _collective: _core.ParameterServer

    def __init__(self, context: Context, arguments: ParameterServerArguments, deadline: Deadline) -> None:
        from ..support.native import core

        super().__init__(context, arguments, deadline)
        self._pulled = time.monotonic()
        self._suspended = False
        self._pushed: PushRequest | None = None  # the newest
        weights = buffers.matching_array(arguments.initial.array, arguments.initial.buffer)
        self._rank = context.communicator.rank
        if context.membership is not None:
            made = ContinuingServer(context, arguments, deadline, weights=weights, call=self._shaped_update())
            self._collective = cast("_core.ParameterServer", made)
            return
        self._collective = core.ParameterServer(
            context.engine,
            weights=buffers.as_bytes_exporter(weights),
            call=self._shaped_update(),
            nodes=context.nodes,
            timeout=deadline.remaining(),
            **arguments.for_engine(),
        )
        if (calls := self._collective.update_calls) is not None:
            thread = UpdateThread(calls, arguments.name)
            context.when_closed(thread.check)

    def _shaped_update(self) -> Callable[..., None] | None:
        update = self._arguments.update
        if update is None or isinstance(update, UpdateRule):
            return None
        shape = self.shape if len(self._arguments.servers.ranks) == 1 else -1

        def call(weights: np.ndarray[Any, Any], gradient: np.ndarray[Any, Any]) -> None:
            update(weights.reshape(shape), gradient.reshape(shape))

        return call

    # --- workers

    def push(self, gradient: BufferSpec, *, timeout: float | None = None) -> PushRequest:
        """Push a gradient to the server. Only for workers.

        The call waits for other workers only if this worker's previous push still waits for them. With servers="node",
        it also waits for earlier updates. If a rank stalls in such an update, the call still returns at its time limit:
        the push counts, and is done when the updates continue.

        Parameters
        ----------
        gradient
            C-contiguous host memory of the count and dtype of `initial`; under `EAMSGD` the weights. You may change it
            after the call.
        timeout
            Seconds; None for the communicator's default, `math.inf` for no limit.

        Returns
        -------
        Request
            Done when the worker may continue; its `wait` returns a `PushInfo`.

        Raises
        ------
        ValueError, TypeError, BufferError
            `gradient` has a wrong count or dtype, is not a buffer, is not contiguous, or has values that are not finite
            (under nan="reject"). Nothing is sent.
        StallError
            The previous push is not done in time. Nothing is sent.
        RankFailedError
            Ranks have died; the message names them.
        RuntimeError
            This rank is not a worker, another thread is in a call of this object, or the update function has raised on
            a server.
        ClosedError
            This rank has left.
        """
        array = self._given("push", gradient)
        deadline = Deadline(self._context.limit(timeout))
        self._end_push(deadline)
        clock = self._collective.push(buffers.as_bytes_exporter(array), timeout=deadline.remaining())
        return self._request(clock)

    def pull(self, out: BufferSpec, *, timeout: float | None = None) -> None:
        """Write the weights to `out`. For any rank.

        After a push, a worker gets the weights when it may continue: in the version at that time or a newer one.
        Other ranks, and a worker that is suspended or has not pushed, get the newest weights. Each shard is a snapshot.
        Shards of several servers may be some updates apart, but not for a worker that takes part under BSP.

        Parameters
        ----------
        out
            Writable C-contiguous host memory of the count and dtype of `initial`.
        timeout
            As for `push`.

        Raises
        ------
        ValueError, TypeError, BufferError, RankFailedError, RuntimeError, ClosedError
            As for `push`.
        StallError
            The weights do not arrive in time; the message names the ranks whose pushes are missing. You may pull again.
        """
        array = self._taken("pull", out)
        deadline = Deadline(self._context.limit(timeout))
        newest = self._newest_version(deadline.remaining()) if self._takes_no_part() else 0
        self._collective.pull(buffers.as_bytes_exporter(array), timeout=deadline.remaining(), at_least=newest)
        self._pulled = time.monotonic()

    def push_pull(self, gradient: BufferSpec, out: BufferSpec, *, timeout: float | None = None) -> None:
        """Push a gradient, and write the weights to `out` when the worker may continue. Only for workers.

        If each gradient is an update and all servers are on this rank's node, push and pull are one pass over the data.

        Parameters
        ----------
        gradient, out
            As for `push` and `pull`. The two may be the same memory, but must not overlap in part.
        timeout
            Seconds for each of the two steps, as for `push`.

        Raises
        ------
        ValueError, TypeError, BufferError, RankFailedError, RuntimeError, ClosedError
            As for `push`.
        StallError
            A step is not done in time; the message names the ranks whose pushes or updates are missing. If `clock` has
            grown, the push counts: continue with `pull`. The same holds after an interrupt.
        """
        given, taken = self._given("push_pull", gradient), self._taken("push_pull", out)
        deadline = Deadline(self._context.limit(timeout))
        self._end_push(deadline)
        self._suspended = False
        clock, limit = self.clock, deadline.remaining()
        try:
            self._collective.push_pull(
                buffers.as_bytes_exporter(given), buffers.as_bytes_exporter(taken), timeout=limit
            )
        except StallError as error:
            if self.clock > clock:
                error.advise("The server has received the push: call pull next, not push_pull again")
            raise
        self._pulled = time.monotonic()

    def give_up(self, *, timeout: float | None = None) -> PushRequest:
        """Give up this trial of `MindFlayer` without a gradient, so that no worker waits for it.

        Only for workers.

        Parameters
        ----------
        timeout
            As for `push`.

        Returns
        -------
        Request
            As for `push`.

        Raises
        ------
        ValueError
            The synchronization is not `MindFlayer`, the only one with trials.
        StallError, RankFailedError, RuntimeError, ClosedError
            As for `push`.
        """
        self._check_worker("give_up")
        if not isinstance(self.sync, MindFlayer):
            raise ValueError(f"{self.name!r}: give_up: expected the synchronization MindFlayer, got {self.sync}")
        deadline = Deadline(self._context.limit(timeout))
        self._end_push(deadline)
        return self._request(self._collective.give_up(timeout=deadline.remaining()))

    def _end_push(self, deadline: Deadline) -> None:
        """Wait for the newest push; its request then has the outcome."""
        if self._pushed is not None:
            self._pushed.wait(timeout=deadline.remaining())
            self._pushed = None

    def _request(self, clock: int) -> PushRequest:
        self._suspended = False
        self._pushed = PushRequest(self, clock)
        return self._pushed

    def is_in_time(self) -> bool:
        """Return True if this worker's trial is within the time limit of `MindFlayer`, or if `sync` has no trials."""
        self._check_worker("is_in_time")
        if not isinstance(self.sync, MindFlayer):
            return True
        each = self.sync.engine_arguments()["allotted"]  # one per worker, or one for all
        allotted: float = each[self._arguments.workers.index(self._rank)] if len(each) > 1 else each[0]
        return time.monotonic() - self._pulled <= allotted

    def suspend(self, *, timeout: float | None = None) -> None:
        """Take no part until the next push, so that no other worker waits for this worker. Only for workers.

        When `suspend` returns, all pushes of this worker have arrived at the server. Afterwards, a gradient computed
        from weights pulled before this call is discarded; a gradient from weights pulled after it counts.

        Parameters
        ----------
        timeout
            As for `push`.

        Raises
        ------
        StallError
            The server does not answer in time. Call it again.
        ValueError, RankFailedError, RuntimeError, ClosedError
            As for `push`.
        """
        self._check_worker("suspend")
        deadline = Deadline(self._context.limit(timeout))
        self._collective.suspend(timeout=deadline.remaining())
        self._suspended = True
        self._newest_version(deadline.remaining())

    def _flush(self, timeout: float | None) -> None:
        if self._rank in self.workers and self.clock > 0:
            self._newest_version(timeout)

    # --- the state

    @property
    def clock(self) -> int:
        """The number of this rank's pushes, including trials that it gave up."""
        return self._collective.clock

    @property
    def version(self) -> int:
        """The number of updates in the weights that this rank received last; if shards differ, in the oldest shard."""
        return self._collective.version

    @property
    def last_push(self) -> PushInfo | None:
        """The outcome of the newest push after which the server released this worker; None before the first release.

        Raises
        ------
        RuntimeError
            Another thread is in a call of this object.
        """
        if self._rank not in self._arguments.workers:
            return None
        clock, version, staleness, used = self._collective.outcome
        return PushInfo(clock, version, staleness, used) if clock else None

    def statistics(self) -> ParameterServerStatistics:
        return ParameterServerStatistics(pushes=self.clock, version=self.version, **self._collective.statistics())

    def server_statistics(self, *, timeout: float | None = None) -> ServerStatistics:
        """Request the server's counters of all workers. For any rank.

        Parameters
        ----------
        timeout
            As for `push`.

        Returns
        -------
        ServerStatistics
            The counters of all workers.

        Raises
        ------
        StallError
            The server does not answer in time. Call it again.
        RankFailedError, RuntimeError, ClosedError
            As for `push`.
        """
        counted = self._collective.server_statistics(timeout=self._context.limit(timeout))
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
        """Whether this rank serves a shard of the weights."""
        return self._rank in self.servers

    @property
    def servers(self) -> tuple[int, ...]:
        """The ranks that hold shards; empty if the pushing worker updates the weights itself."""
        if self._context.membership is not None:
            return self.recoverable.servers  # type: ignore[no-any-return]
        return () if self._arguments.servers.direct else self._arguments.servers.ranks

    @property
    def workers(self) -> tuple[int, ...]:
        """The ranks that push gradients."""
        return self._arguments.workers

    @property
    def sync(self) -> Synchronization:
        """The synchronization: when gradients are used and when workers continue."""
        return self._arguments.sync

    @property
    def update(self) -> UpdateRule | Callable[..., Any] | None:
        """The rule or function that applies gradients to the weights; None under `EAMSGD`."""
        return self._arguments.update

    def _c_handle(self) -> object:
        if isinstance(self.sync, MindFlayer):
            raise TypeError(f"{self.name!r}: for calls from C, expected a synchronization other than MindFlayer")
        return super()._c_handle()

    def _takes_no_part(self) -> bool:
        """Whether updates do not wait for this rank, which must therefore ask for the newest version."""
        return self._rank not in self.workers or self._suspended

    def _newest_version(self, limit: float | None) -> int:
        """Wait until this rank's messages have arrived; return the number of updates that the server has decided on."""
        if self._arguments.servers.direct and self._context.membership is None:
            return 0  # each call has arrived when it returns
        version: int = self._collective.server_statistics(timeout=limit)["version"]
        return version

    def _given(self, call: str, gradient: BufferSpec) -> np.ndarray[Any, Any]:
        self._check_worker(call)
        return buffers.matching_array(gradient, self._template.buffer, name=self.name)

    def _taken(self, call: str, out: BufferSpec) -> np.ndarray[Any, Any]:
        return buffers.matching_array(out, self._template.buffer, name=f"{self.name}: {call}", writable=True)

    def _check_worker(self, call: str) -> None:
        if self._rank not in self._arguments.workers:
            raise RuntimeError(
                f"{self.name}: {call}: expected a worker, one of {list(self._arguments.workers)}, got rank {self._rank}"
            )

    def _choices(self) -> list[str]:
        where = "in the node's memory" if self._arguments.servers.direct else f"on ranks {list(self.servers)}"
        return [f"{where},", repr(self.sync)]
