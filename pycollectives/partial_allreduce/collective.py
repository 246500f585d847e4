"""The partial allreduce: a persistent collective whose rounds do not wait for stragglers (eager-SGD, section 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..collective import Reduction
from ..selection.model import algorithm_names
from .arguments import PartialAllreduceSpecification
from .checked import checked
from .device import DeviceCollective

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

    from .. import _core
    from .._core import Round, RoundInfo
    from ..context import Context
    from ..support.deadline import Deadline
    from ..support.typing import Array, BufferSpec
    from .policies import Policy

__all__ = ["PartialAllreduce"]


class PartialAllreduce(Reduction):
    """A reduction over all ranks that is repeated round by round; made by `Communicator.partial_allreduce`.

    Every rank contributes when it has something; the policy says when a round starts; ranks with nothing to give are
    absent from it, which is not the same as zero. Made, flushed and left by all ranks; contributed to by each as often
    as it likes, by one thread at a time.

    As a context manager it is flushed and closed at the end (collective). If the block raises, it is closed at once,
    data that waits is discarded, and a `RuntimeWarning` says how much.

    >>> import numpy as np, pycollectives as pc
    >>> from mpi4py import MPI
    >>> with pc.Communicator(MPI.COMM_SELF) as comm:
    ...     with comm.partial_allreduce(like=np.zeros(2), name="sum") as ar:
    ...         info = ar.contribute(np.array([1.0, 2.0])).wait(timeout=30.0)
    ...         print(ar.result, info.contributors)
    [1. 2.] (0,)
    """

    _collective: _core.PartialAllreduce
    _specification: PartialAllreduceSpecification

    def __init__(
        self,
        collective: _core.PartialAllreduce,
        specification: PartialAllreduceSpecification,
        context: Context,
    ) -> None:
        """Wrap the engine's collective."""
        self._collective = collective
        self._specification = specification
        self._context = context
        self._shape = specification.buffer.shape
        # The engine's own methods, without a frame of Python around them: after a while of sleep or work, when nothing
        # of it is in the caches, such a frame costs 10 us more. What a derived class overrides is left to it.
        if type(self).contribute is PartialAllreduce.contribute:
            self.contribute = collective.contribute  # type: ignore[method-assign]
        if type(self).allreduce is PartialAllreduce.allreduce:
            self.allreduce = collective.allreduce  # type: ignore[assignment,method-assign]

    @classmethod
    def create(
        cls,
        context: Context,
        /,
        *,
        like: Callable[[], object],
        call: str = "partial_allreduce",
        name: object = None,
        **options: Any,
    ) -> Self:
        """Make one, by the arguments of `Communicator.partial_allreduce`; collective.

        What `like()` raises is a refusal of this rank, which the other ranks get too. `call` is its name in messages.
        """

        def check() -> PartialAllreduceSpecification:
            return PartialAllreduceSpecification.checked(
                like(),
                name=context.default_name("partial_allreduce") if name is None else name,
                size=context.size,
                algorithms=algorithm_names(),
                nodes=context.nodes,
                costs=context.costs,
                **options,
            )

        return context.make(call, check, lambda agreed, deadline: cls._build(context, agreed, deadline))

    @classmethod
    def _build(cls, context: Context, specification: PartialAllreduceSpecification, deadline: Deadline) -> Self:
        from ..support.native import core

        limits: dict[str, Any] = {"timeout": deadline.remaining(), "default_timeout": context.timeout}
        collective: Any
        if specification.device is None:
            collective = core.PartialAllreduce(
                context.engine,
                convert=specification.readable,
                writable=specification.writable,
                **limits,
                **specification.engine_arguments(),
            )
        else:
            device, stream = specification.device, specification.stream
            assert device is not None
            assert stream is not None
            made = core.DevicePartialAllreduce(context.engine, **limits, **specification.device_arguments())
            collective = DeviceCollective(made, specification.buffer, device, stream)
        watched = checked(collective, context.checks, specification)
        return cls(watched, specification, context)

    def contribute(self, x: BufferSpec, *, stream: Any = None) -> Round:
        """Hand data over; it may be reused as soon as this returns.

        Parameters
        ----------
        x
            C-contiguous host memory of the collective's shape and dtype: a NumPy array or anything that exports
            PEP 3118 or DLPack, or `[buffer, count, type]`. If the collective was made from a count, any shape of that
            count. If it was made like an array on a CUDA device: an array on that device, of the same shape. It is
            handed over when its stream has made it, and work that you queue on that stream next may overwrite it.
        stream
            Only of arrays on a device: the stream on which you work with them, of PyTorch, CuPy or Numba, an object
            with `__cuda_stream__`, or a handle. None: PyTorch's current one, or the one that the array names.

        Returns
        -------
        Round
            Completes with the round that this call takes part in; `wait` returns its `RoundInfo`.

        Raises
        ------
        ValueError, TypeError, BufferError
            Wrong shape or count; wrong dtype, or no buffer; not contiguous, or in other memory. Nothing is sent.
        ClosedError
            After `close`.
        RuntimeError
            Another thread is in a call of this collective.
        """
        return self._collective.contribute(x, **_given(stream))

    def allreduce(
        self, x: BufferSpec, out: BufferSpec | None = None, timeout: float | None = None, *, stream: Any = None
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
            The round is not done in time. The data stays handed over.
        """
        return self._collective.allreduce(x, out, timeout, **_given(stream))

    @property
    def result(self) -> Array:
        """The newest result that this rank was given: read-only, of the collective's shape and dtype.

        Of arrays on a CUDA device it is an object with `__cuda_array_interface__`, of which CuPy and PyTorch make an
        array without a copy; its `to_host()` is a copy on the host.

        It does not change until this rank contributes again. Of several calls that have not been waited for, it may be
        of a later round than the one whose handle `wait` is called on first. `RuntimeError` before the first round.
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

    def flush(self, timeout: float | None = None) -> RoundInfo:
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
            Some ranks have neither flushed nor closed in time; names them. Call `flush` again to go on waiting:
            nothing can be contributed until it has returned.
        ClosedError
            After `close`.
        """
        return self._collective.flush(self._context.limit(timeout))

    def close(self) -> None:
        """Leave for good, without waiting for anybody and without flushing.

        The engine serves the other ranks' rounds, with this rank absent, until all have closed. Closing again does
        nothing.
        """
        self._collective.close()
        self._context.forget(self)

    def abort(self) -> int:
        """Close at once and discard what waits; the number of contributions that nobody will get."""
        if not self._collective.in_own_process or self._collective.closed:
            return 0
        discarded = self._collective.abort()
        self._context.forget(self)
        return discarded

    @property
    def policy(self) -> Policy:
        """Who may start a round."""
        return self._specification.policy

    @property
    def algorithm(self) -> str:
        """The algorithm's name, after "auto" has been resolved."""
        return self._specification.algorithm

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of results, in elements."""
        return self._shape

    @property
    def rounds(self) -> int:
        """Rounds that this rank has seen complete."""
        return self._collective.rounds

    def _choices(self) -> str:
        return f"policy={self.policy!r} algorithm={self.algorithm}"


def _given(stream: Any) -> dict[str, Any]:
    """Return the argument, if there is one: collectives of arrays on the host have none."""
    return {} if stream is None else {"stream": stream}
