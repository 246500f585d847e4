"""The partial allreduce: a persistent collective whose rounds do not wait for stragglers (eager-SGD, section 4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..collective import Collective, Statistics
from ..request import Request
from .arguments import PartialAllreduceArguments
from .checked import checked
from .device import DeviceCollective

if TYPE_CHECKING:
    from .. import _core
    from .._core import Round, RoundInfo
    from ..context import Context
    from ..policies import Policy
    from ..support.deadline import Deadline
    from ..support.typing import Array, BufferSpec

__all__ = ["AllreduceStatistics", "PartialAllreduce"]


@dataclass(frozen=True, kw_only=True)
class AllreduceStatistics(Statistics):
    """What `PartialAllreduce.statistics` says of one rank.

    Attributes
    ----------
    rounds
        Rounds that this rank has seen complete.
    contributions
        Its calls.
    included
        Of those that are done, whose data was in the round that they completed with.
    late
        Of those that are done, which were late: rounds had completed that this rank had not been given.
    missed
        Rounds that this rank was given only as part of a later look.
    overrun
        Looks that had missed more rounds than `history`.
    """

    rounds: int
    contributions: int
    included: int
    late: int
    missed: int
    overrun: int


class PartialAllreduce(Collective[PartialAllreduceArguments]):
    """A reduction over all ranks that is repeated round by round; made by `Communicator.partial_allreduce`.

    Every rank contributes when it has something; the policy says when a round starts; ranks with nothing to give are
    absent from it, which is not the same as zero. Made, flushed and left by all ranks; contributed to by each as often
    as it likes, by one thread at a time.

    >>> import numpy as np, pycollectives as pc
    >>> from mpi4py import MPI
    >>> with pc.Communicator(MPI.COMM_SELF) as comm:
    ...     with comm.partial_allreduce(np.zeros(2), name="sum") as ar:
    ...         info = ar.contribute(np.array([1.0, 2.0])).wait(timeout=30.0)
    ...         print(ar.result, info.contributors)
    [1. 2.] (0,)
    """

    arguments = PartialAllreduceArguments
    discards = True
    _collective: _core.PartialAllreduce

    def __init__(self, context: Context, arguments: PartialAllreduceArguments, deadline: Deadline) -> None:
        """Make the engine's collective; collective."""
        from ..support.native import core

        super().__init__(context, arguments, deadline)
        Request.register(core.Round)
        options: dict[str, Any] = {
            "timeout": deadline.remaining(),
            "default_timeout": context.timeout,
            **arguments.for_engine(context.nodes),
        }
        made: Any
        if arguments.like.device is None:
            made = core.PartialAllreduce(context.engine, **options)
        else:
            made = DeviceCollective(core.DevicePartialAllreduce(context.engine, **options), arguments.like)
        self._collective = checked(made, context.checks, arguments)
        # The engine's own methods, without a frame of Python around them: after a while of sleep or work, when nothing
        # of it is in the caches, such a frame costs 10 us more. What a derived class overrides is left to it.
        if type(self).contribute is PartialAllreduce.contribute:
            self.contribute = self._collective.contribute  # type: ignore[method-assign]
        if type(self).allreduce is PartialAllreduce.allreduce:
            self.allreduce = self._collective.allreduce  # type: ignore[assignment,method-assign]

    def contribute(self, x: BufferSpec, *, stream: Any = None) -> Round:
        """Hand data over; it may be reused as soon as this returns.

        Parameters
        ----------
        x
            C-contiguous host memory of the collective's count and dtype, of any shape: a NumPy array or anything that
            exports PEP 3118 or DLPack, or `[buffer, count, type]`. If the collective was made like an array on a CUDA
            device: an array on that device. It is handed over when its stream has made it, and work that you queue on
            that stream next may overwrite it.
        stream
            Only of arrays on a device: the stream on which you work with them, of PyTorch, CuPy or Numba, an object
            with `__cuda_stream__`, or a handle. None: PyTorch's current one, or the one that the array names.

        Returns
        -------
        Request
            Completes with the round that this call takes part in; `wait` returns its `RoundInfo`.

        Raises
        ------
        ValueError, TypeError, BufferError
            Wrong count; wrong dtype, or no buffer; not contiguous, or in other memory. Nothing is sent.
        ClosedError
            This rank has left.
        RuntimeError
            Another thread is in a call of this collective.
        """
        return self._collective.contribute(x, **_given(stream))

    def allreduce(
        self, x: BufferSpec, out: BufferSpec | None = None, *, timeout: float | None = None, stream: Any = None
    ) -> tuple[Array, RoundInfo]:
        """Contribute and wait.

        Parameters
        ----------
        x
            As for `contribute`.
        out
            Writable memory of the same count and dtype, for the result.
        timeout
            Seconds; None for the communicator's default, `math.inf` for no limit.
        stream
            As for `contribute`; also of `out`.

        Returns
        -------
        result : ndarray
            Of the collective's shape and dtype: the memory of `out`, or if there is none, what `result` gives.
        info : RoundInfo
            Who is in the result.

        Raises
        ------
        ValueError, TypeError, BufferError, ClosedError, RuntimeError
            As `contribute`, for `x` and `out`.
        StallError
            The round is not done in time. The data is contributed: do not contribute it again. Contribute the next
            data, or `flush`.
        """
        return self._collective.allreduce(x, out, timeout=timeout, **_given(stream))

    @property
    def result(self) -> Array:
        """The newest result that this rank was given: read-only, of the collective's shape and dtype.

        Of arrays on a CUDA device it is an object with `__cuda_array_interface__`, of which CuPy and PyTorch make an
        array without a copy; its `to_host()` is a copy on the host.

        It does not change until this rank contributes again, flushes, or calls `wait`, `test` or `done` of another
        request. Then it is the result of that request. Under `missed="sum"` a result has only the rounds that this rank
        has not received before. If there are none, it is the identity of the op. Of several calls that have not been
        waited for, it may be of a later round than the one whose handle `wait` is called on first. `RuntimeError`
        before the first round.
        """
        return self._collective.result

    @property
    def must_flush(self) -> bool:
        """Whether this thread has contributed since the last `flush`, and other ranks may wait for its next call."""
        return self._collective.has_contributed and self.policy.waits_for_arrivals(self._context.size)

    def start_flush(self) -> None:
        """Begin a `flush`, which is to follow: from now on no round waits for this rank.

        With several collectives, call it on all of them before the first `flush`: otherwise a rank may wait in another
        collective for this rank, which waits in a flush. Nothing can be contributed until `flush` has returned.
        """
        self._collective.start_flush()

    def flush(self, *, timeout: float | None = None) -> RoundInfo:
        """Deliver all data that still waits, of all ranks, in one synchronous round; collective.

        Afterwards `result` is the result of this round or, under `missed="sum"`, the sum of all that this rank had not
        been given yet, however many rounds that are. A round in which nobody had anything waiting gives the identity of
        the op: 0 for SUM and AVG. The collective stays usable.

        Parameters
        ----------
        timeout
            Seconds to wait for the other ranks; None for the communicator's default, `math.inf` for no limit.

        Raises
        ------
        StallError
            Some ranks have neither flushed nor left in time; names them. Call `flush` again to go on waiting:
            nothing can be contributed until it has returned.
        ClosedError
            This rank has left.
        """
        info: RoundInfo = super().flush(timeout=timeout)
        return info

    def _flush(self, timeout: float | None) -> RoundInfo:
        return self._collective.flush(timeout=timeout)

    def _discard(self) -> int:
        return self._collective.abort()

    def statistics(self) -> AllreduceStatistics:
        """Return what this rank has done so far; local, without communication."""
        return AllreduceStatistics(**self._collective.statistics())

    @property
    def policy(self) -> Policy:
        """Who may start a round."""
        return self._arguments.policy

    @property
    def algorithm(self) -> str:
        """The algorithm's name, after "auto" has been resolved."""
        return self._arguments.algorithm

    @property
    def op(self) -> str:
        """The reduction's name, such as "SUM"."""
        return self._arguments.op

    @property
    def rounds(self) -> int:
        """Rounds that this rank has seen complete."""
        return self._collective.rounds

    def _choices(self) -> list[str]:
        return [self.op, f"policy={self.policy!r}", f"algorithm={self.algorithm}"]


def _given(stream: Any) -> dict[str, Any]:
    """Return the argument, if there is one: collectives of arrays on the host have none."""
    return {} if stream is None else {"stream": stream}
