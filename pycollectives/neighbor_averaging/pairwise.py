"""Asynchronous averaging in pairs: AD-PSGD (Lian, Zhang, Zhang, Liu 2018)."""

from __future__ import annotations

import contextlib
import threading
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..collective import Collective
from ..support.deadline import Deadline
from ..support.errors import RankFailedError, TransportError
from .arrays import DeviceArrays, HostArrays
from .equalizer import Equalizer
from .pairwise_arguments import PairwiseSpecification

if TYPE_CHECKING:
    from typing_extensions import Self

    from ..context import Context
    from ..support.typing import Array, BufferSpec
    from ..topology.graph import Topology

__all__ = ["PairwiseAveraging", "PairwiseStatistics"]


@dataclass(frozen=True)
class PairwiseStatistics:
    """What `PairwiseAveraging.statistics` says of one rank, since it was made.

    Attributes
    ----------
    exchanges
        Averages that this rank's model was in.
    begun
        Those that this rank began.
    begun_between_nodes
        Of these, with ranks of other nodes, by messages.
    declined
        Requests that a rank of another node declined, because it was in an average already.
    skipped
        Segments that were left out of an average, because another average held them.
    applied
        Calls of `apply`.
    staleness_mean
        Averages that the model was in between a `read` and the `apply` that follows, in the mean.
    staleness_max
        The most of them.
    waited
        Seconds that `read` and `apply` have waited for the lock of a segment.
    """

    exchanges: int
    begun: int
    begun_between_nodes: int
    declined: int
    skipped: int
    applied: int
    staleness_mean: float
    staleness_max: int
    waited: float


class PairwiseAveraging(Collective):
    """A model that is averaged with neighbors in the background; made by `Communicator.pairwise_averaging`.

    `read` and `apply` wait for no other rank's application; any thread may call them. In Algorithm 1 of AD-PSGD a rank
    reads x', computes the gradient at x', and applies it to x, which averages have changed meanwhile.

    An average changes no element's sum over ranks (under "a2cid2": that of the model and its momentum), and a delta is
    applied exactly once. A rank that closes it, or dies, is averaged with no more.

    As a context manager it makes all models equal at the end (collective), and closes. If the block raises, it is
    closed at once.

    >>> import numpy as np, pycollectives as pc
    >>> from pycollectives.testing import run_ranks
    >>> def train(comm):
    ...     with comm.pairwise_averaging(like=np.zeros(2), topology="ring") as model:
    ...         for step in range(10):
    ...             weights = model.read()
    ...             model.apply(0.5 * (comm.rank - weights))
    ...         model.equalize()
    ...         return float(np.ptp(model.read()))
    >>> run_ranks(4, train)
    [0.0, 0.0, 0.0, 0.0]
    """

    discards = False  # what was applied is in the model

    def __init__(
        self, like: BufferSpec, specification: PairwiseSpecification, context: Context, deadline: Deadline
    ) -> None:
        """Make the engine's collectives; collective."""
        self._specification = specification
        self._context = context
        self._equalizing = threading.Lock()
        made = {
            "engine": context.engine,
            "nodes": context.nodes,
            "timeout": deadline.remaining(),
            **specification.engine_arguments(context.rank),
        }
        self._arrays = (HostArrays if specification.device is None else DeviceArrays)(like, specification, made)
        self._collective = self._arrays.collective
        self._held = np.dtype(self._collective.held_dtype_name)
        try:
            self._equalizer = Equalizer(
                context, count=self.count, dtype=self._held, name=specification.name, deadline=deadline
            )
        except BaseException:
            self._collective.close()
            raise

    @classmethod
    def create(cls, context: Context, /, *, like: BufferSpec, name: object = None, **options: Any) -> Self:
        """Make one, by the arguments of `Communicator.pairwise_averaging`; collective."""

        def check() -> PairwiseSpecification:
            from ..support.native import core

            specification = PairwiseSpecification.checked(
                like,
                name=context.default_name("pairwise_averaging") if name is None else name,
                size=context.size,
                **options,
            )
            core.PairwiseAveraging.check(context.engine, **specification.engine_arguments(context.rank))
            return specification

        return context.make("pairwise_averaging", check, lambda agreed, deadline: cls(like, agreed, context, deadline))

    def read(self, out: BufferSpec | None = None, *, stream: Any = None) -> Array:
        """Return a copy of this rank's model.

        Each segment of it (64 KiB, on a device 4 MiB) is as it was at one moment; with `atomic="model"` all of it.

        Parameters
        ----------
        out
            C-contiguous, writable host memory of the shape and dtype of `like`, to write it to; by default a new array
            of the shape of `like`. If `like` is on a CUDA device: an array on that device; by default memory of the
            library's own, an object with `__cuda_array_interface__` and `to_host()`, which the next `read` or
            `equalize` overwrites.
        stream
            Only of models on a device: the stream on which you work with what is written to, as for `apply`. Without
            `out` and `stream`, that of the newest call.

        Raises
        ------
        ValueError, TypeError, BufferError
            `out` is refused.
        RankFailedError
            Neighbors have died: once for each. Later calls go on without them.
        RuntimeError
            This rank's device has failed, or a neighbor's: the latter once for each, and later calls go on without it.
        ClosedError
            After `close`.
        """
        array: Array = self._arrays.read(out, stream)
        return array

    def apply(self, delta: BufferSpec, *, stream: Any = None) -> None:
        """Add to whatever the model has become (AD-PSGD, Algorithm 1, line 6): `delta` is minus rate times gradient.

        Parameters
        ----------
        delta
            C-contiguous memory of the shape and dtype of `like`, on the host or on the device of `like`; may be
            overwritten at once.
        stream
            Only of models on a device: the stream on which you work with `delta`, of PyTorch, CuPy or Numba, an object
            with `__cuda_stream__`, or a handle. None: PyTorch's current one, or the one that the array names. The call
            waits on the host until that has made the values.

        Raises
        ------
        ValueError, TypeError, BufferError
            `delta` is refused. Nothing is added.
        RankFailedError
            Neighbors have died: once for each. Nothing is added; later calls go on without them.
        RuntimeError
            As for `read`. Nothing is added, unless this rank's device fails meanwhile: then its model is lost.
        ClosedError
            After `close`. Nothing is added.
        KeyboardInterrupt
            In a wait for a part of the model that is being averaged, which takes microseconds unless a process is
            stopped in it. All of `delta` has been added, unless it was interrupted twice.
        """
        self._arrays.apply(delta, stream)

    def equalize(self, timeout: float | None = None) -> Array:
        """Give every rank the mean of all ranks' models; collective among the ranks that have not closed it.

        Averages rest until it is done. What other threads apply meanwhile is added to the mean. After a `StallError`
        call it again: it goes on where it was. After another error some ranks may have the mean and others not, and
        `equalize` can be called no more; `read`, `apply` and averages go on. Close the model on all ranks then.

        Parameters
        ----------
        timeout
            Seconds, for all of it; None for the communicator's default.

        Returns
        -------
        numpy.ndarray
            The mean, of the shape and dtype of `like`; on a device as `read` returns it. It goes through the host.

        Raises
        ------
        StallError
            Not done in time: names who has not come.
        RankFailedError
            A rank has died.
        ClosedError
            After `close`.
        RuntimeError
            Another thread is in it, an earlier call ended by an error, or as for `read`.
        """
        deadline = Deadline(self._context.limit(timeout))
        if not self._equalizing.acquire(blocking=False):
            raise RuntimeError(f"{self.name}: equalize called while another thread is in it")
        try:
            self._collective.pause(timeout=deadline.remaining())
            try:
                mean = self._equalizer.average(self._read_kept, self._collective.replace_held, deadline)
            finally:
                if not self._equalizer.is_under_way or self._equalizer.failed:
                    self._collective.resume()
        except RankFailedError as error:
            self._collective.set_told(error.ranks)
            raise
        finally:
            self._equalizing.release()
        result: Array = self._arrays.given(mean.astype(self.dtype).reshape(self._specification.buffer.shape))
        return result

    def flush(self, timeout: float | None = None) -> None:
        """As `equalize`; after an error of that nothing, with a warning: then models may differ."""
        if self._equalizer.failed:
            warnings.warn(
                f"{self.name}: models may differ: equalize has ended by an error", RuntimeWarning, stacklevel=2
            )
            return
        self.equalize(timeout)

    def close(self) -> None:
        """Leave for good, without waiting: this rank's model is averaged no more. Closing again does nothing."""
        self._collective.close()
        self._equalizer.close()
        self._context.forget(self)

    def abort(self) -> int:
        """Close at once. Returns 0: what was applied is in the model."""
        for leave in (self._collective.close, self._equalizer.abort):
            with contextlib.suppress(RankFailedError, TransportError):  # no rank can be reached any more
                leave()
        self._context.forget(self)
        return 0

    def statistics(self) -> PairwiseStatistics:
        """Return what this rank has done so far."""
        counts = self._collective.statistics()
        return PairwiseStatistics(
            exchanges=counts["averages"],
            begun=counts["begun"],
            begun_between_nodes=counts["begun_between_nodes"],
            declined=counts["declined"],
            skipped=counts["skipped"],
            applied=counts["applied"],
            staleness_mean=counts["staleness_sum"] / max(counts["applied"], 1),
            staleness_max=counts["staleness_max"],
            waited=counts["waited"],
        )

    @property
    def name(self) -> str:
        """The name in messages and traces."""
        return self._specification.name

    @property
    def closed(self) -> bool:
        """Whether this rank has left for good."""
        return self._collective.closed

    @property
    def topology(self) -> Topology:
        """Who averages with whom."""
        return self._specification.topology

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type of the model, as it is read; 16-bit models are held in float32."""
        return self._specification.buffer.dtype

    @property
    def count(self) -> int:
        """Elements of the model."""
        return self._specification.buffer.count

    def __repr__(self) -> str:
        """Show what it is and whether it is closed."""
        state = " closed" if self.closed else ""
        return f"<PairwiseAveraging {self.name!r} of {self.count} {self.dtype} {self.topology!r}{state}>"

    def _read_kept(self) -> Array:
        held = np.empty(self.count, self._held)
        self._collective.read_kept(held)
        return held
