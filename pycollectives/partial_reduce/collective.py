"""The partial reduce: averages of weights in groups that a generator forms (Ripples, sections 3 and 4)."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from ..collective import Collective, Statistics
from ..groups import StaticGroups
from .arguments import PartialReduceArguments
from .continuing import ContinuingReduce
from .weights import DeviceWeights, HostWeights

if TYPE_CHECKING:
    from .. import _core
    from ..context import Context
    from ..groups import AnyGroups
    from ..support.deadline import Deadline
    from ..support.typing import BufferSpec

END_OF_STEPS = 1 << 39
"""Limit of steps: a word in shared memory has 40 bits for a group's number, which may be the step."""


@dataclass(frozen=True)
class GroupInfo:
    """Describes the group in which a call of `PartialReduce.average` took part.

    Attributes
    ----------
    group
        The members, ascending. Only this rank if it averaged with no other rank.
    sequence
        The number of the group, in the order of generation; under `StaticGroups`, the step.
    waited
        Seconds from the request until this rank began its part of the reduction.
    conflicts
        The number of earlier groups that this group had to wait for when it was generated.
    """

    group: tuple[int, ...]
    sequence: int
    waited: float
    conflicts: int


@dataclass(frozen=True, kw_only=True)
class ReduceStatistics(Statistics):
    """Counters of one rank; `PartialReduce.statistics` returns them.

    Attributes
    ----------
    averages
        Completed calls of `average`.
    cache_hits
        Groups that exchanged messages with an existing plan. A plan fits groups of the same size in which this rank has
        the same position.
    cache_misses
        Groups that needed a new plan. The newest 64 plans are kept.
    """

    averages: int
    cache_hits: int
    cache_misses: int


class PartialReduce(Collective[PartialReduceArguments]):
    """Averages among changing groups of ranks; made by `Communicator.partial_reduce`.

    A rank calls `average` after each iteration, as often as it likes; other ranks may call it more or less often. Only
    one thread at a time may use a `PartialReduce`. No new group includes a rank that has left. If a `with` block
    raises, this rank's pending groups are performed without its weights.

    >>> import numpy as np, pycollectives as pc
    >>> from pycollectives.testing import run_ranks
    >>> def train(comm):
    ...     weights = np.full(2, float(comm.rank))
    ...     with comm.partial_reduce(weights, groups="random:2") as pr:
    ...         info = pr.average(weights, timeout=30.0)
    ...     return info.group, weights.tolist()
    >>> run_ranks(2, train)
    [((0, 1), [0.5, 0.5]), ((0, 1), [0.5, 0.5])]
    """

    arguments = PartialReduceArguments
    _collective: _core.PartialReduce | _core.DevicePartialReduce

    def __init__(self, context: Context, arguments: PartialReduceArguments, deadline: Deadline) -> None:
        from ..support.native import core

        super().__init__(context, arguments, deadline)
        options = arguments.for_engine(context.nodes)
        self._weights: HostWeights | DeviceWeights
        if context.membership is not None:
            self._collective = cast("_core.PartialReduce", ContinuingReduce(context, arguments, deadline))
            self._weights = HostWeights(self._collective, arguments)
        elif arguments.like.device is None:
            self._collective = core.PartialReduce(context.engine, timeout=deadline.remaining(), **options)
            self._weights = HostWeights(self._collective, arguments)
        else:
            self._collective = core.DevicePartialReduce(context.engine, timeout=deadline.remaining(), **options)
            self._weights = DeviceWeights(self._collective, arguments)
        self._step = 0
        self._used_in_c = False

    @classmethod
    def check_for_engine(cls, context: Context, arguments: PartialReduceArguments) -> None:
        from ..support.native import core

        context.check_on_host("like", arguments.like)
        core.PartialReduce.check(
            context.engine, **arguments.for_plans(context.size), on_device=arguments.like.device is not None
        )

    def average(
        self, weights: BufferSpec, step: int | None = None, *, timeout: float | None = None, stream: Any = None
    ) -> GroupInfo:
        """Average weights in place with this rank's next group, and wait until the average is complete.

        Parameters
        ----------
        weights
            C-contiguous, writable host memory of the count and dtype of `like`. For several arrays, see `flatten`. If
            `like` was an array on a CUDA device: an array on that device.
        step
            The number of the iteration, from 0 to 2**39 - 1. Default: the number of the last call plus 1. Under
            `StaticGroups` it selects the group, so all ranks must use the same numbers, in ascending order.
        timeout
            Seconds; None for the communicator's default, `math.inf` for no limit.
        stream
            Only for arrays on a device: the stream on which you use them. A PyTorch, CuPy or Numba stream, an object
            with `__cuda_stream__`, or a handle. None: PyTorch's current stream, or the one that the array specifies.
            The call waits for earlier work on that stream before it requests a group. When it returns, the average is
            complete.

        Returns
        -------
        GroupInfo
            Describes the group.

        Raises
        ------
        ValueError, TypeError, BufferError
            `weights` has a wrong count or dtype, is not a buffer, is not contiguous, is read-only, or is in other
            memory. Nothing is sent.
        StallError
            The average is not complete in time; the message names the group and its missing members. The object cannot
            average afterwards, and a group that completes late may still change `weights`. If only the stream was not
            done in time, no group was requested, and you may call `average` again.
        RankFailedError
            A rank has died. On the host, each element is either this rank's own or the average, never a partial sum.
        ClosedError
            This rank has left, or an earlier call failed.
        RuntimeError
            Another thread is in a call of this object, or the device of this rank or of a named rank has failed.
        """
        limit = self._context.limit(timeout)
        number = max(self._next_step, self._begins_at) if step is None else operator.index(step)
        if not 0 <= number < END_OF_STEPS:
            raise ValueError(f"{self.name}: expected 0 <= step < 2**39, got {number}")
        groups = self.groups
        ruled: tuple[int, ...] = ()
        if isinstance(groups, StaticGroups):
            if number < self._step:  # messages identify groups by it
                raise ValueError(f"{self.name}: expected step >= {self._step}, above the last call's, got {number}")
            ruled = groups.group_of(self.comm.rank, number, self.comm.size)
        group, sequence, waited, conflicts = self._weights.average(
            weights, stream, step=number, group=ruled, timeout=limit
        )
        self._step = number + 1
        return GroupInfo(group, sequence, waited, conflicts)

    def leave(self, weights: BufferSpec | None = None, *, stream: Any = None) -> None:
        """Leave without waiting: no new group includes this rank.

        Its engine performs its pending groups in the background, with a copy of the final weights. Leaving again does
        nothing.

        Parameters
        ----------
        weights
            The final weights; by default, the current content of the last buffer passed to `average`. If the last call
            came from C, there is no default, and later groups are performed without this rank's weights.
        stream
            As for `average`.
        """
        try:
            if self._next_step > self._step and isinstance(self._weights, HostWeights):
                self._weights.forget()
            self._weights.leave(weights, stream)
        finally:
            if self._collective.closed:
                self._context.forget(self)

    def statistics(self) -> ReduceStatistics:
        return ReduceStatistics(**self._collective.statistics())

    @property
    def groups(self) -> AnyGroups:
        """The generator or rule that forms the groups."""
        return self._arguments.groups

    @property
    def op(self) -> str:
        """The reduction's name, such as "AVG"."""
        return self._arguments.op

    @property
    def _next_step(self) -> int:
        if not self._used_in_c:
            return self._step
        return max(self._step, cast("_core.PartialReduce", self._collective).next_step)

    def _c_handle(self) -> object:
        if isinstance(self.groups, StaticGroups):
            raise TypeError(f"{self.name!r}: C cannot call the Python rule of StaticGroups: use preduce")
        handle = super()._c_handle()
        self._used_in_c = True
        return handle

    def _choices(self) -> list[str]:
        return [self.op, f"groups={self.groups!r}"]
