"""The partial reduce: weights averaged in groups that a generator forms (Ripples, sections 3 and 4)."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..collective import Collective, Statistics
from ..groups import StaticGroups
from .arguments import PartialReduceArguments
from .weights import DeviceWeights, HostWeights

if TYPE_CHECKING:
    from .. import _core
    from ..context import Context
    from ..groups import AnyGroups
    from ..support.deadline import Deadline
    from ..support.typing import BufferSpec

__all__ = ["GroupInfo", "PartialReduce", "ReduceStatistics"]

END_OF_STEPS = 1 << 39
"""In shared memory a word has 40 bits for a group; under a rule its number is the step."""


@dataclass(frozen=True)
class GroupInfo:
    """What `PartialReduce.average` says of the group that answered it.

    Attributes
    ----------
    group
        Its members, ascending; this rank alone if nobody is averaged with.
    sequence
        Its number, in the order of generation; under `StaticGroups` the step.
    waited
        Seconds from the request until this rank began its part of the reduction.
    conflicts
        Earlier groups that it had to wait for when it was generated.
    """

    group: tuple[int, ...]
    sequence: int
    waited: float
    conflicts: int


@dataclass(frozen=True, kw_only=True)
class ReduceStatistics(Statistics):
    """What `PartialReduce.statistics` says of one rank.

    Attributes
    ----------
    averages
        Calls of `average` that were answered.
    cache_hits
        Groups that were performed by messages with an existing plan: of their size and this rank's position.
    cache_misses
        For how many it had to be made. The newest 64 are kept.
    """

    averages: int
    cache_hits: int
    cache_misses: int


class PartialReduce(Collective[PartialReduceArguments]):
    """Averages among changing groups of ranks; made by `Communicator.partial_reduce`.

    A rank calls `average` after each iteration, as often as it likes; the others may call it more or less often. One
    thread at a time. A rank that leaves is in no new group. If a `with` block raises, groups that this rank is in
    already are performed without it.

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
        """Make the engine's collective; collective."""
        from ..support.native import core

        super().__init__(context, arguments, deadline)
        options = arguments.for_engine(context.nodes)
        self._weights: HostWeights | DeviceWeights
        if arguments.like.device is None:
            self._collective = core.PartialReduce(context.engine, timeout=deadline.remaining(), **options)
            self._weights = HostWeights(self._collective, arguments)
        else:
            self._collective = core.DevicePartialReduce(context.engine, timeout=deadline.remaining(), **options)
            self._weights = DeviceWeights(self._collective, arguments)
        self._step = 0

    @classmethod
    def check_for_engine(cls, context: Context, arguments: PartialReduceArguments) -> None:
        """See `Collective`."""
        from ..support.native import core

        core.PartialReduce.check(
            context.engine, **arguments.for_plans(context.size), on_device=arguments.like.device is not None
        )

    def average(
        self, weights: BufferSpec, step: int | None = None, *, timeout: float | None = None, stream: Any = None
    ) -> GroupInfo:
        """Average with the next group of this rank, in place; blocks until that is done.

        Parameters
        ----------
        weights
            C-contiguous, writable host memory of the count and dtype of `like`. Several arrays: see `flatten`. If the
            object was made like an array on a CUDA device: an array on that device.
        step
            The number of the iteration, from 0 to 2**39 - 1. By default that of the call before and one more. Under
            `StaticGroups` it says which group this is: all ranks must count alike, and upwards.
        timeout
            Seconds; None for the communicator's default, `math.inf` for no limit.
        stream
            Only of arrays on a device: the stream on which you work with them, of PyTorch, CuPy or Numba, an object
            with `__cuda_stream__`, or a handle. None: PyTorch's current one, or the one that the array names. The call
            waits for what that stream was given before, then asks for a group; on return the averages are there.

        Raises
        ------
        ValueError, TypeError, BufferError
            Wrong count; wrong dtype, or no buffer; not contiguous, read-only, or in other memory. Nothing is sent.
        StallError
            Not done in time: names the group and who has not come to it. Nothing can be averaged any more;
            `weights` may still be changed, by a group that completes late. If it is the stream that is not done in
            time, nothing was asked for, and this may be called again.
        ClosedError
            This rank has left, or after an error.
        RuntimeError
            Another thread is in a call of this object. Or a device has failed, of this rank or of one that is named.
        """
        limit = self._context.limit(timeout)
        number = self._step if step is None else operator.index(step)
        if not 0 <= number < END_OF_STEPS:
            raise ValueError(f"{self.name}: expected 0 <= step < 2**39, got {number}")
        groups = self.groups
        ruled: tuple[int, ...] = ()
        if isinstance(groups, StaticGroups):
            if number < self._step:  # messages tell groups apart by it
                raise ValueError(f"{self.name}: expected step >= {self._step}, after the last, got {number}")
            ruled = groups.group_of(self._context.rank, number, self._context.size)
        group, sequence, waited, conflicts = self._weights.average(
            weights, stream, step=number, group=ruled, timeout=limit
        )
        self._step = number + 1
        return GroupInfo(group, sequence, waited, conflicts)

    def leave(self, weights: BufferSpec | None = None, *, stream: Any = None) -> None:
        """Take no further part, without waiting for anybody: this rank is in no new group.

        Groups that it is in already are performed by its engine, in the background, with a copy of the final weights.
        Leaving again does nothing.

        Parameters
        ----------
        weights
            The final weights; by default what the buffer holds that was passed to `average` last.
        stream
            As for `average`.
        """
        try:
            self._weights.leave(weights, stream)
        finally:
            if self._collective.closed:
                self._context.forget(self)

    def statistics(self) -> ReduceStatistics:
        """Return what this rank has done so far; local, without communication."""
        return ReduceStatistics(**self._collective.statistics())

    @property
    def groups(self) -> AnyGroups:
        """Who says the groups."""
        return self._arguments.groups

    @property
    def op(self) -> str:
        """The reduction's name, such as "AVG"."""
        return self._arguments.op

    def _choices(self) -> list[str]:
        return [self.op, f"groups={self.groups!r}"]
