"""The partial allreduce: a persistent collective whose rounds do not wait for stragglers (eager-SGD, section 4)."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from ..collective import Collective, Statistics
from ..request import Request
from ..support.environment import straggler_share
from .arguments import PartialAllreduceArguments
from .checked import checked
from .continuing import ContinuingAllreduce
from .device import DeviceCollective
from .stragglers import Straggler, StragglerWarning

if TYPE_CHECKING:
    from collections.abc import Callable

    from .. import _core
    from .._core import Round, RoundInfo
    from ..context import Context
    from ..policies import Policy
    from ..support.deadline import Deadline
    from ..support.typing import Array, BufferSpec


@dataclass(frozen=True, kw_only=True)
class AllreduceStatistics(Statistics):
    """Counters of one rank; `PartialAllreduce.statistics` returns them.

    Attributes
    ----------
    rounds
        Rounds completed on this rank.
    contributions
        Calls of this rank.
    included
        Completed calls whose data was in the round with which they completed.
    late
        Completed calls that were late: made after a round whose result this rank had not received.
    missed
        Rounds whose result this rank received only as part of a later one or, under `missed="latest"`, not at all.
    overrun
        Calls that had missed more rounds than `history`.
    stragglers
        The ranks whose data was absent from rounds that this rank received, starting with those absent most often.
        Rounds that this rank did not receive are not counted.
    """

    rounds: int
    contributions: int
    included: int
    late: int
    missed: int
    overrun: int
    stragglers: tuple[Straggler, ...]


class PartialAllreduce(Collective[PartialAllreduceArguments]):
    """A reduction over all ranks, repeated round by round; made by `Communicator.partial_allreduce`.

    Each rank contributes when it has data, as often as it likes. The policy decides when a round starts. Ranks without
    data are absent from the round, which differs from contributing zeros. All ranks make, flush and close the
    collective together. Only one thread at a time may use it.

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
    _collective: _core.PartialAllreduce  # or one that wraps it

    def __init__(self, context: Context, arguments: PartialAllreduceArguments, deadline: Deadline) -> None:
        from ..support.native import core

        super().__init__(context, arguments, deadline)
        Request.register(core.Round)
        self._straggler_warning = StragglerWarning(straggler_share())
        if context.membership is None:
            self._collective = self._made(arguments, deadline)
        else:
            continuing = ContinuingAllreduce(context, arguments, deadline)
            self._collective = cast("_core.PartialAllreduce", continuing)
            continuing.when_remade = self._when_remade()
        # The engine's own methods, without a Python frame: with cold caches, after sleep or work, a frame costs 10 us.
        # Methods that a derived class overrides are kept.
        if type(self).contribute is PartialAllreduce.contribute:
            self.contribute = self._collective.contribute  # type: ignore[method-assign]
        if type(self).allreduce is PartialAllreduce.allreduce:
            self.allreduce = self._collective.allreduce  # type: ignore[assignment,method-assign]

    def _when_remade(self) -> Callable[[], None]:
        """Return a function that, after a death, sets `allreduce` to the method of the new engine's collective."""
        of_self = weakref.ref(self)

        def take() -> None:
            collective = of_self()
            if collective is not None and type(collective).allreduce is PartialAllreduce.allreduce:
                collective.allreduce = collective._collective.allreduce  # type: ignore[assignment,method-assign]

        return take

    def _made(self, arguments: PartialAllreduceArguments, deadline: Deadline) -> _core.PartialAllreduce:
        from ..support.native import core

        context = self._context
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
        return checked(made, context.checks, arguments)

    @classmethod
    def check_for_engine(cls, context: Context, arguments: PartialAllreduceArguments) -> None:
        context.check_on_host("like", arguments.like)

    def contribute(self, x: BufferSpec, *, stream: Any = None) -> Round:
        """Contribute data to a round without waiting; you may reuse the array when the call returns.

        Parameters
        ----------
        x
            C-contiguous host memory of the collective's count and dtype, of any shape: a NumPy array, an object that
            exports PEP 3118 or DLPack, or `[buffer, count, type]`. If the collective was made with a `like` on a CUDA
            device: an array on that device. The data is read once its stream has produced it. Work that you queue on
            that stream after this call may overwrite it.
        stream
            Only for arrays on a device: the stream on which you use them. A PyTorch, CuPy or Numba stream, an object
            with `__cuda_stream__`, or a handle. None: PyTorch's current stream, or the one that the array specifies.

        Returns
        -------
        Request
            A request that completes with the round in which this call takes part. Its `wait` returns a `RoundInfo`.

        Raises
        ------
        ValueError, TypeError, BufferError
            `x` has a wrong count or dtype, is not a buffer, is not contiguous, or is in other memory. Nothing is sent.
        ClosedError
            This rank has left.
        RuntimeError
            Another thread is in a call of this collective.
        """
        return self._collective.contribute(x, **_given(stream))

    def allreduce(
        self, x: BufferSpec, out: BufferSpec | None = None, *, timeout: float | None = None, stream: Any = None
    ) -> tuple[Array, RoundInfo]:
        """Contribute data and wait for the result.

        Parameters
        ----------
        x
            As for `contribute`.
        out
            Writable memory of the same count and dtype for the result. Default: the result is `self.result`.
        timeout
            Seconds; None for the communicator's default, `math.inf` for no limit.
        stream
            As for `contribute`; also for `out`.

        Returns
        -------
        result : ndarray
            The result, of the collective's shape and dtype: in the memory of `out`, or the read-only `self.result`.
        info : RoundInfo
            Describes the round, including its contributors.

        Raises
        ------
        ValueError, TypeError, BufferError, ClosedError, RuntimeError
            As for `contribute`, for `x` and `out`.
        StallError
            The round is not done in time. The data has been contributed: do not contribute it again. Contribute the
            next data, or call `flush`.
        """
        return self._collective.allreduce(x, out, timeout=timeout, **_given(stream))

    @property
    def result(self) -> Array:
        """The newest result that this rank has received: read-only, of the collective's shape and dtype.

        If arrays are on a CUDA device, the result is an object with `__cuda_array_interface__`: CuPy and PyTorch make
        an array from it without a copy, and its `to_host()` returns a copy on the host.

        It does not change until this rank contributes again, flushes, or calls `wait`, `test` or `done` of another
        request, whose result it then shows. Under `missed="sum"`, it includes only rounds that this rank has not
        received before; if there are none, it is the identity of the op. With several pending calls, it may belong to a
        later round than the request that you wait for first. Before the first round, it raises `RuntimeError`.
        """
        return self._collective.result

    @property
    def must_flush(self) -> bool:
        """Whether this thread has contributed since the last `flush` and other ranks can wait for its next call."""
        return self._collective.has_contributed and self.policy.waits_for_arrivals(self._context.size)

    def start_flush(self) -> None:
        """Announce a `flush`: from now on no round waits for this rank.

        With several collectives, call it on all of them before the first `flush`. Otherwise this rank may wait in a
        flush while another rank waits for it in another collective. Do not contribute until `flush` has returned.
        """
        self._collective.start_flush()

    def flush(self, *, timeout: float | None = None) -> RoundInfo:
        """Deliver the pending data of all ranks in one synchronous round; collective. The collective stays usable.

        Afterwards, `result` is the result of this round or, under `missed="sum"`, the sum of all results that this rank
        had not received, including this round's. If no rank had pending data, the round's result is the identity of the
        op: 0 for SUM and AVG.

        Parameters
        ----------
        timeout
            Seconds to wait for the other ranks; None for the communicator's default, `math.inf` for no limit.

        Returns
        -------
        RoundInfo
            Describes the round.

        Raises
        ------
        StallError
            Some ranks have neither flushed nor left in time; the message names them. Call `flush` again to continue; do
            not contribute until it has returned.
        ClosedError
            This rank has left.
        """
        info: RoundInfo = super().flush(timeout=timeout)
        if self._straggler_warning.share is not None and self._context.rank == 0:
            counts = self.statistics()
            self._straggler_warning.check(self.name, counts.rounds, counts.stragglers)
        return info

    def _flush(self, timeout: float | None) -> RoundInfo:
        return self._collective.flush(timeout=timeout)

    def _discard(self) -> int:
        return self._collective.abort()

    def statistics(self) -> AllreduceStatistics:
        counts = self._collective.statistics()
        stragglers = sorted(counts.pop("stragglers"), key=lambda each: (-each[1], each[0]))
        return AllreduceStatistics(**counts, stragglers=tuple(Straggler(*each) for each in stragglers))

    @property
    def policy(self) -> Policy:
        """The policy that decides when a round starts."""
        return self._arguments.policy

    @property
    def algorithm(self) -> str:
        """The algorithm's name, after "auto" has been resolved."""
        return self._arguments.algorithm

    @property
    def activation(self) -> str:
        """The activation's name, after "auto" has been resolved."""
        return self._arguments.activation

    @property
    def op(self) -> str:
        """The reduction's name, such as "SUM"."""
        return self._arguments.op

    @property
    def rounds(self) -> int:
        """The number of rounds completed on this rank."""
        return self._collective.rounds

    def _c_handle(self) -> object:
        if self._context.checks.on:
            raise TypeError(f"{self.name!r}: PYC_CHECK=1 cannot check calls from C: unset PYC_CHECK")
        return super()._c_handle()

    def _choices(self) -> list[str]:
        return [self.op, f"policy={self.policy!r}", f"algorithm={self.algorithm}"]


def _given(stream: Any) -> dict[str, Any]:
    """Return `stream` as a keyword argument, if it is given. Collectives of host arrays have no such parameter."""
    return {} if stream is None else {"stream": stream}
