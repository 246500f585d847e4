"""Asynchronous averaging in pairs: AD-PSGD (Lian, Zhang, Zhang, Liu 2018)."""

from __future__ import annotations

import contextlib
import threading
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from ..collective import Collective, Statistics
from ..support.deadline import Deadline
from ..support.errors import RankFailedError, TransportError
from .arguments import PairwiseArguments
from .arrays import DeviceArrays, HostArrays, host_model
from .continuing_pairs import ContinuingPairs
from .equalizer import Equalizer

if TYPE_CHECKING:
    from .. import _core
    from ..context import Context
    from ..support.typing import Array, BufferSpec
    from ..topology.graph import Topology


@dataclass(frozen=True, kw_only=True)
class PairwiseStatistics(Statistics):
    """Counters of one rank since creation; `PairwiseAveraging.statistics` returns them.

    Attributes
    ----------
    exchanges
        Averages in which this rank's model took part.
    begun
        Averages that this rank began.
    begun_between_nodes
        Averages that this rank began with ranks of other nodes, using messages.
    declined
        Requests that a rank of another node declined because it was already in an average.
    skipped
        Segments left out of an average because another average had locked them.
    applied
        Calls of `apply`.
    staleness_mean
        Mean number of averages of this model between a `read` and the next `apply`.
    staleness_max
        Largest number of averages between a `read` and the next `apply`.
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
    """A model that the engine averages with neighbors in the background; made by `Communicator.pairwise_averaging`.

    `read` and `apply` wait for no other rank's application, and any thread may call them. In Algorithm 1 of AD-PSGD, a
    rank reads x', computes the gradient at x', and applies it to x, which averages may have changed in between.

    An average preserves each element's sum over ranks (with "a2cid2", the sum of the model and its momentum). Each
    delta is applied exactly once. After a rank leaves or dies, no average includes its model.

    `flush`, `close` and the end of a `with` block call `equalize`, which makes all models equal (collective).

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
        super().__init__(context, arguments, deadline)
        self._equalizing = threading.Lock()
        self._arrays: HostArrays | DeviceArrays
        self._equalizer: Equalizer | ContinuingPairs
        if context.membership is not None:
            self._equalizer = ContinuingPairs(context, arguments, deadline)
            pairs = cast("_core.PairwiseAveraging", self._equalizer)
            self._collective, self._arrays = pairs, HostArrays(arguments, pairs)
            return
        made = {
            "engine": context.engine,
            "nodes": context.nodes,
            "timeout": deadline.remaining(),
            **arguments.for_engine(context.rank),
        }
        if arguments.initial.device is None:
            from ..support.native import core

            pairs = core.PairwiseAveraging(initial=host_model(arguments), **made)
            self._collective, self._arrays = pairs, HostArrays(arguments, pairs)
        else:
            self._arrays = DeviceArrays(arguments, made)
            self._collective = self._arrays.collective
        try:
            self._equalizer = Equalizer(
                context, self._collective, count=self.count, name=arguments.name, deadline=deadline
            )
        except BaseException:
            self._collective.leave()
            raise

    @classmethod
    def check_for_engine(cls, context: Context, arguments: PairwiseArguments) -> None:
        from ..support.native import core

        context.check_on_host("initial", arguments.initial)
        core.PairwiseAveraging.check(context.engine, **arguments.for_engine(context.rank))

    def read(self, out: BufferSpec | None = None, *, stream: Any = None) -> Array:
        """Return a copy of this rank's model.

        Each segment of the copy (64 KiB, or 4 MiB on a device) is a snapshot. With `lock="model"`, the whole copy is
        one snapshot.

        Parameters
        ----------
        out
            Memory for the copy: C-contiguous, writable host memory of the count and dtype of `initial`; by default a
            new array of the shape of `initial`. If `initial` is on a CUDA device: an array on that device; by default,
            memory of the library, as an object with `__cuda_array_interface__` and `to_host()`, which the next `read`
            or `equalize` overwrites.
        stream
            Only for models on a device: the stream on which you use the copy, as for `apply`. Default without `out`:
            the stream of the newest call.

        Returns
        -------
        numpy.ndarray
            The copy: `out`, or a new array; on a device the object described above.

        Raises
        ------
        ValueError, TypeError, BufferError
            `out` is invalid.
        RankFailedError
            Neighbors have died. Raised once for each neighbor; later calls continue without it.
        RuntimeError
            This rank's device or a neighbor's has failed. For a neighbor's device, the error is raised once, and later
            calls continue without that neighbor.
        ClosedError
            This rank has left.
        """
        array: Array = self._arrays.read(out, stream)
        return array

    def apply(self, delta: BufferSpec, *, stream: Any = None) -> None:
        """Add `delta` to the current model (AD-PSGD, Algorithm 1, line 6), such as -rate * gradient.

        Parameters
        ----------
        delta
            C-contiguous memory of the count and dtype of `initial`, on the host or on its device. You may overwrite it
            after the call.
        stream
            Only for models on a device: the stream on which you use `delta`. A PyTorch, CuPy or Numba stream, an object
            with `__cuda_stream__`, or a handle. None: PyTorch's current stream, or the one that the array specifies.
            The call waits on the host until that stream has produced the values.

        Raises
        ------
        ValueError, TypeError, BufferError
            `delta` is invalid. Nothing is added.
        RankFailedError
            Neighbors have died. Raised once for each neighbor. Nothing is added; later calls continue without it.
        RuntimeError
            As for `read`. Nothing is added. If this rank's device fails during the call, its model is lost.
        ClosedError
            This rank has left. Nothing is added.
        KeyboardInterrupt
            Ctrl-C while the call waits for a segment that is being averaged. The wait takes microseconds, unless a
            process is stopped in an average. All of `delta` has been added, unless the call was interrupted twice.
        """
        self._arrays.apply(delta, stream)

    def equalize(self, *, timeout: float | None = None) -> Array:
        """Give every rank the mean of all ranks' models; collective among the ranks that have not left.

        No averages run during the call. Deltas that other threads apply during the call are added to the mean. After a
        `StallError`, call `equalize` again to continue. After another error, some ranks may lack the mean:
        `equalize` is then unusable, while `read`, `apply` and averages continue. Leave the collective on all ranks.

        Parameters
        ----------
        timeout
            Seconds for the whole call; None for the communicator's default, `math.inf` for no limit.

        Returns
        -------
        numpy.ndarray
            The mean, of the shape and dtype of `initial`; on a device, an object as for `read`. Device data is copied
            through the host.

        Raises
        ------
        StallError
            The call is not complete in time; the message names the ranks that have not arrived.
        RankFailedError
            A rank has died.
        ClosedError
            This rank has left.
        RuntimeError
            Another thread is in `equalize`, or an earlier call ended with an error. Also as for `read`.
        """
        deadline = Deadline(self._context.limit(timeout))
        if not self._equalizing.acquire(blocking=False):
            raise RuntimeError(f"{self.name}: equalize: called while another thread is in a call of equalize")
        try:
            mean = self._equalizer.equalize(deadline)
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
        """See `Collective.close`. If `equalize` has failed, only leave, and warn that models may differ."""
        if not self.closed and self._equalizer.failed:
            text = f"{self.name}: models may differ: equalize has ended with an error"
            warnings.warn(text, RuntimeWarning, stacklevel=2)
            self.leave()
        super().close(timeout=timeout)

    def leave(self) -> None:
        """See `Collective.leave`. Afterwards, no average includes this rank's model."""
        self._collective.leave()
        self._equalizer.leave()
        self._context.forget(self)

    def _discard(self) -> int:
        for leave in (self._equalizer.abort, self._collective.leave):
            with contextlib.suppress(RankFailedError, TransportError):  # no rank is reachable
                leave()
        return 0  # applied deltas are in the model

    def statistics(self) -> PairwiseStatistics:
        counts = self._collective.statistics()
        equalizing = self._equalizer.statistics_of_rounds()
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
        """The graph along which ranks average."""
        return self._arguments.topology

    def _choices(self) -> list[str]:
        return [repr(self.topology)]
