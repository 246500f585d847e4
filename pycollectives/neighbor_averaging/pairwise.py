"""Asynchronous averaging in pairs: AD-PSGD (Lian, Zhang, Zhang, Liu 2018)."""

from __future__ import annotations

import contextlib
import threading
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..collective import Collective, Statistics
from ..support.deadline import Deadline
from ..support.errors import RankFailedError, TransportError
from .arguments import PairwiseArguments
from .arrays import DeviceArrays, HostArrays
from .equalizer import Equalizer

if TYPE_CHECKING:
    from .. import _core
    from ..context import Context
    from ..support.typing import Array, BufferSpec
    from ..topology.graph import Topology

__all__ = ["PairwiseAveraging", "PairwiseStatistics"]


@dataclass(frozen=True, kw_only=True)
class PairwiseStatistics(Statistics):
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
        Seconds that `read` and `apply` have waited for the lock of a segment, and `equalize` for other ranks.
    """

    exchanges: int
    begun: int
    begun_between_nodes: int
    declined: int
    skipped: int
    applied: int
    staleness_mean: float
    staleness_max: int


class PairwiseAveraging(Collective[PairwiseArguments]):
    """A model that is averaged with neighbors in the background; made by `Communicator.pairwise_averaging`.

    `read` and `apply` wait for no other rank's application; any thread may call them. In Algorithm 1 of AD-PSGD a rank
    reads x', computes the gradient at x', and applies it to x, which averages have changed meanwhile.

    An average changes no element's sum over ranks (under "a2cid2": that of the model and its momentum), and a delta is
    applied exactly once. A rank that leaves, or dies, is averaged with no more.

    To flush it is to `equalize`: so `close`, and the end of a `with` block, make all models equal (collective).

    >>> import numpy as np, pycollectives as pc
    >>> from pycollectives.testing import run_ranks
    >>> def train(comm):
    ...     with comm.pairwise_averaging(np.zeros(2), topology="ring") as model:
    ...         for step in range(10):
    ...             weights = model.read()
    ...             model.apply(0.5 * (comm.rank - weights))
    ...         model.equalize()
    ...         return float(np.ptp(model.read()))
    >>> run_ranks(4, train)
    [0.0, 0.0, 0.0, 0.0]
    """

    arguments = PairwiseArguments
    _collective: _core.PairwiseAveraging | _core.DevicePairwiseAveraging

    def __init__(self, context: Context, arguments: PairwiseArguments, deadline: Deadline) -> None:
        """Make the engine's collectives; collective."""
        super().__init__(context, arguments, deadline)
        self._equalizing = threading.Lock()
        made = {
            "engine": context.engine,
            "nodes": context.nodes,
            "timeout": deadline.remaining(),
            **arguments.for_engine(context.rank),
        }
        self._arrays = (HostArrays if arguments.initial.device is None else DeviceArrays)(arguments, made)
        self._collective = self._arrays.collective
        self._held = np.dtype(self._collective.held_dtype_name)
        try:
            self._equalizer = Equalizer(
                context, count=self.count, dtype=self._held, name=arguments.name, deadline=deadline
            )
        except BaseException:
            self._collective.leave()
            raise

    @classmethod
    def check_for_engine(cls, context: Context, arguments: PairwiseArguments) -> None:
        """See `Collective`."""
        from ..support.native import core

        core.PairwiseAveraging.check(context.engine, **arguments.for_engine(context.rank))

    def read(self, out: BufferSpec | None = None, *, stream: Any = None) -> Array:
        """Return a copy of this rank's model.

        Each segment of it (64 KiB, on a device 4 MiB) is as it was at one moment; with `lock="model"` all of it.

        Parameters
        ----------
        out
            C-contiguous, writable host memory of the count and dtype of `initial`, to write it to; by default a new
            array of the shape of `initial`. If `initial` is on a CUDA device: an array on that device; by default
            memory of the library's own, an object with `__cuda_array_interface__` and `to_host()`, which the next
            `read` or `equalize` overwrites.
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
            This rank has left.
        """
        array: Array = self._arrays.read(out, stream)
        return array

    def apply(self, delta: BufferSpec, *, stream: Any = None) -> None:
        """Add to whatever the model has become (AD-PSGD, Algorithm 1, line 6): `delta` is minus rate times gradient.

        Parameters
        ----------
        delta
            C-contiguous memory of the count and dtype of `initial`, on the host or on its device; may be
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
            This rank has left. Nothing is added.
        KeyboardInterrupt
            In a wait for a part of the model that is being averaged, which takes microseconds unless a process is
            stopped in it. All of `delta` has been added, unless it was interrupted twice.
        """
        self._arrays.apply(delta, stream)

    def equalize(self, *, timeout: float | None = None) -> Array:
        """Give every rank the mean of all ranks' models; collective among the ranks that have not left.

        Averages rest until it is done. What other threads apply meanwhile is added to the mean. After a `StallError`
        call it again: it goes on where it was. After another error some ranks may have the mean and others not, and
        `equalize` can be called no more; `read`, `apply` and averages go on. Leave on all ranks then.

        Parameters
        ----------
        timeout
            Seconds, for all of it; None for the communicator's default.

        Returns
        -------
        numpy.ndarray
            The mean, of the shape and dtype of `initial`; on a device as `read` returns it. It goes through the host.

        Raises
        ------
        StallError
            Not done in time: names who has not come.
        RankFailedError
            A rank has died.
        ClosedError
            This rank has left.
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
        result: Array = self._arrays.given(mean.astype(self.dtype).reshape(self.shape))
        return result

    def _flush(self, timeout: float | None) -> None:
        self.equalize(timeout=timeout)

    def close(self, *, timeout: float | None = None) -> None:
        """See `Collective.close`. After an error of `equalize` it only leaves, with a warning: models may differ."""
        if not self.closed and self._equalizer.failed:
            text = f"{self.name}: models may differ: equalize has ended by an error"
            warnings.warn(text, RuntimeWarning, stacklevel=2)
            self.leave()
        super().close(timeout=timeout)

    def leave(self) -> None:
        """See `Collective.leave`: this rank's model is averaged no more."""
        self._collective.leave()
        self._equalizer.leave()
        self._context.forget(self)

    def _discard(self) -> int:
        for leave in (self._collective.leave, self._equalizer.abort):
            with contextlib.suppress(RankFailedError, TransportError):  # no rank can be reached any more
                leave()
        return 0  # what was applied is in the model

    def statistics(self) -> PairwiseStatistics:
        """Return what this rank has done so far; local, without communication."""
        counts = self._collective.statistics()
        equalizing = self._equalizer.statistics()
        return PairwiseStatistics(
            exchanges=counts["averages"],
            begun=counts["begun"],
            begun_between_nodes=counts["begun_between_nodes"],
            declined=counts["declined"],
            skipped=counts["skipped"],
            applied=counts["applied"],
            staleness_mean=counts["staleness_sum"] / max(counts["applied"], 1),
            staleness_max=counts["staleness_max"],
            waited=counts["waited"] + equalizing["waited"],
            memory_bytes=counts["memory_bytes"] + equalizing["memory_bytes"],
        )

    @property
    def topology(self) -> Topology:
        """Who averages with whom."""
        return self._arguments.topology

    def _choices(self) -> list[str]:
        return [repr(self.topology)]

    def _read_kept(self) -> Array:
        held = np.empty(self.count, self._held)
        self._collective.read_kept(held)
        return held
