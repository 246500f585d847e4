"""A persistent allreduce request for code written for MPI, with mpi4py's names and argument order."""
# ruff: noqa: N802

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .agreement.options import turn_on
from .communicator import Communicator
from .partial_allreduce.arguments import PartialAllreduceArguments
from .partial_allreduce.collective import PartialAllreduce
from .policies import Full, Policy
from .request import Request, wait_all
from .support import buffers
from .support.deadline import Deadline
from .support.validation import checked_timeout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mpi4py import MPI

    from ._core import Round, RoundInfo
    from .support.typing import Array, BufferSpec, InPlace, Late, Missed, Op


def Allreduce_init(
    sendbuf: BufferSpec | InPlace,
    recvbuf: BufferSpec,
    op: Op = "SUM",
    comm: MPI.Comm | Communicator | None = None,
    *,
    policy: Policy | str = Full(),  # noqa: B008 - immutable
    late: Late = "accumulate",
    missed: Missed | None = None,
    max_staleness: int | None = None,
    activation: str = "auto",
    algorithm: str = "auto",
    history: int = 8,
    name: str | None = None,
    timeout: float | None = None,
) -> PartialRequest:
    """Make a persistent request for a partial allreduce; collective.

    Parameters
    ----------
    sendbuf
        The data that `Start` contributes: a buffer, `[buffer, count, type]`, or `MPI.IN_PLACE` to use `recvbuf`.
    recvbuf
        Writable memory of the same count and type for the result of a completed round.
    op
        As for `Communicator.partial_allreduce`.
    comm
        An mpi4py communicator, by default `MPI.COMM_WORLD`. The first request makes a `Communicator` for it, later
        requests share it, and freeing the last request closes it (collective). You can also pass a `Communicator`,
        which stays open.
    policy
        When a round starts. Default: when all ranks have arrived, as in `MPI_Allreduce_init`.
    late, missed, max_staleness, activation, algorithm, history, name, timeout
        As for `Communicator.partial_allreduce`.

    Returns
    -------
    PartialRequest
        An inactive request.

    Raises
    ------
    ValueError, TypeError, BufferError, MismatchError, StallError, ClosedError
        As for `Communicator.partial_allreduce`.
    """
    operands: list[Array] = []

    def like() -> Array:
        operands.extend(_operands(sendbuf, recvbuf))
        return operands[0]

    deadline = _deadline(timeout)
    shared = None
    if isinstance(comm, Communicator):
        communicator = comm
    else:
        shared = _Shared.of(comm, deadline)
        communicator = shared.communicator
    try:
        collective = PartialAllreduce.make(
            communicator._context,
            lambda: PartialAllreduceArguments(
                like(),
                op=op,
                policy=policy,
                late=late,
                missed=missed,
                max_staleness=max_staleness,
                activation=activation,
                algorithm=algorithm,
                history=history,
                name=name,
                timeout=timeout,
            ),
            call="Allreduce_init",
            timeout=deadline.remaining(),
        )
    except BaseException as error:
        if shared is not None:
            refused = isinstance(error, ValueError | TypeError | BufferError)  # refused on all ranks, so all close
            shared.give_up(deadline.remaining() if refused else 0.0)
        raise
    send, recv = operands
    return PartialRequest(collective, send, recv, shared)


class PartialRequest(Request):
    """A persistent request: `Start` contributes the send buffer, `Wait` writes the receive buffer.

    As with any MPI request, one thread at a time may use it, and its buffers must stay alive. Do not access the receive
    buffer between `Start` and completion. You may reuse the send buffer as soon as `Start` returns.

    >>> import numpy as np, pycollectives as pc
    >>> from mpi4py import MPI
    >>> gradient, total = np.ones(2), np.empty(2)
    >>> request = pc.Allreduce_init(gradient, total, MPI.SUM, MPI.COMM_SELF, policy=pc.Solo())
    >>> for step in range(3):
    ...     request.Start()
    ...     info = request.Wait()
    >>> request.Free()
    >>> print(total, info.round)
    [1. 1.] 2
    """

    def __init__(self, collective: PartialAllreduce, send: Array, recv: Array, shared: _Shared | None) -> None:
        self._collective = collective
        self._send = send
        self._recv = recv
        self._shared = shared
        self._round: Round | None = None
        self._info: RoundInfo | None = None

    @property
    def collective(self) -> PartialAllreduce:
        """The partial allreduce of this request, for methods without an MPI equivalent: `flush`, `result`, `policy`."""
        return self._collective

    def Start(self) -> None:
        """Start the request: contribute the send buffer. Raise `RuntimeError` if the request is active."""
        if self._round is not None:
            raise RuntimeError(f"{self._collective.name}: Start called on an active request; call Wait first")
        self._round = self._collective.contribute(self._send)

    def Wait(self, *, timeout: float | None = None) -> RoundInfo:
        """Wait for the round and write its result to the receive buffer.

        For an inactive request, return the information about its last round, and leave the buffer unchanged.

        Parameters
        ----------
        timeout
            Seconds; None for the communicator's default, `math.inf` for no limit.

        Returns
        -------
        RoundInfo
            Describes the round.

        Raises
        ------
        StallError
            The round is not complete in time. The request stays active.
        RuntimeError
            The request was never started.
        """
        if self._round is not None:
            info = self._round.wait(timeout=timeout)
            self._complete(info)
        if self._info is None:
            raise RuntimeError(f"{self._collective.name}: Wait called on a request that was never started")
        return self._info

    def Test(self) -> bool:
        """Return True if the request is inactive, or if its round is complete; then write the receive buffer."""
        if self._round is not None and self._round.test():
            self._complete(self._round.wait(timeout=0.0))
        return self._round is None

    def wait(self, *, timeout: float | None = None) -> RoundInfo:
        """See `Wait`. `pycollectives.wait_all` and `wait_any` call this method."""
        return self.Wait(timeout=timeout)

    def test(self) -> bool:
        """See `Test`. `pycollectives.wait_any` calls this method."""
        return self.Test()

    @property
    def active(self) -> bool:
        """Whether the request was started, and neither `Wait` nor `Test` has completed it."""
        return self._round is not None

    @property
    def info(self) -> RoundInfo | None:
        """The `RoundInfo` of the last completed round; None before the first."""
        return self._info

    @property
    def default_timeout(self) -> float | None:
        """Time limit of `Wait` without `timeout`, in seconds; None for no limit."""
        return None if self._round is None else self._round.default_timeout

    def Free(self, *, timeout: float | None = None) -> None:
        """Free the request: leave its collective without a flush.

        Freeing the last request on an mpi4py communicator waits for all ranks.

        Parameters
        ----------
        timeout
            Seconds; None for the communicator's default, `math.inf` for no limit.

        Raises
        ------
        StallError
            Some ranks have not freed their last request in time. Call `Free` again to continue.
        """
        self._round = None
        self._collective.leave()
        if self._shared is not None:
            self._shared.release(timeout)
            self._shared = None

    @classmethod
    def Startall(cls, requests: Sequence[PartialRequest]) -> None:
        """Start all `requests`, in order."""
        for request in requests:
            request.Start()

    @classmethod
    def Waitall(cls, requests: Sequence[PartialRequest], *, timeout: float | None = None) -> list[RoundInfo | None]:
        """Wait for all active requests, as `pycollectives.wait_all` does.

        Parameters
        ----------
        requests
            Active or inactive requests.
        timeout
            Seconds for all requests together; None for the default of the first active request's communicator.

        Returns
        -------
        list
            The `info` of each request.
        """
        return wait_all(requests, timeout=timeout)

    def __repr__(self) -> str:
        return f"<PartialRequest of {self._collective.name!r}, {'active' if self.active else 'inactive'}>"

    def _complete(self, info: RoundInfo) -> None:
        np.copyto(self._recv, self._collective.result)
        self._info = info
        self._round = None


def _deadline(timeout: float | None) -> Deadline:
    """Return the deadline of a call. A later check reports an invalid `timeout` to all ranks."""
    with contextlib.suppress(TypeError, ValueError):
        return Deadline(checked_timeout(timeout))
    return Deadline(None)


def _operands(sendbuf: object, recvbuf: object) -> tuple[Array, Array]:
    from .support.native import MPI

    in_place = sendbuf is None or sendbuf is MPI.IN_PLACE
    expected = buffers.describe(recvbuf if in_place else sendbuf)
    recv = buffers.matching_array(recvbuf, expected, name="recvbuf", writable=True).reshape(expected.shape)
    send = recv if in_place else buffers.matching_array(sendbuf, expected)
    return send.reshape(expected.shape), recv


@dataclass
class _Shared:
    """The communicator that all requests on an mpi4py communicator share, stored as an attribute of the latter."""

    communicator: Communicator
    users: int = 1

    @classmethod
    def of(cls, comm: MPI.Comm | None, deadline: Deadline) -> _Shared:
        """Return the shared communicator of `comm`, made at first use, and add one user."""
        from .support.native import MPI

        comm = MPI.COMM_WORLD if comm is None else comm
        with turn_on(comm):
            kept = comm.Get_attr(_keyval())
            if not isinstance(kept, cls) or not kept.join():
                kept = cls(Communicator._made_within(comm, deadline.remaining()))
                comm.Set_attr(_keyval(), kept)
        return kept

    def join(self) -> bool:
        """Add one user; return False if the last user has left."""
        with _lock:
            if self.users == 0 or self.communicator.closed:
                return False
            self.users += 1
            return True

    def release(self, timeout: float | None = None) -> None:
        """Remove one user. If it was the last, close the communicator; after a `StallError`, call `release` again."""
        with _lock:
            self.users = max(0, self.users - 1)
            if self.users > 0:
                return
        # Not under the lock: another thread may make a communicator from this one, and wait for ranks that close it.
        self.communicator.close(timeout=timeout)

    def give_up(self, timeout: float | None) -> None:
        """Call `release` after an error, and abort the communicator if it cannot be closed."""
        try:
            self.release(timeout)
        except Exception:
            self.communicator.abort()


_lock = threading.Lock()
_keyvals: list[int] = []
"""The key of the attribute, once it is made."""


def _keyval() -> int:
    from .support.native import MPI

    with _lock:  # two threads could make two, and not find each other's attributes
        if not _keyvals:
            _keyvals.append(MPI.Comm.Create_keyval())
        return _keyvals[0]
