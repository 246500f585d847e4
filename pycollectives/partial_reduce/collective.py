"""The partial reduce: weights averaged in groups that a generator forms (Ripples, sections 3 and 4)."""

from __future__ import annotations

import contextlib
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..collective import Reduction
from ..support.errors import RankFailedError, TransportError
from .arguments import PartialReduceSpecification
from .generators import StaticGroups
from .weights import DeviceWeights, HostWeights

if TYPE_CHECKING:
    from typing_extensions import Self

    from .. import _core
    from ..context import Context
    from ..support.deadline import Deadline
    from ..support.typing import BufferSpec
    from .arguments import AnyGroups

__all__ = ["GroupInfo", "PartialReduce"]

END_OF_STEPS = 1 << 39
"""In shared memory a word has 40 bits for a group; under a rule its number is the step."""


@dataclass(frozen=True)
class GroupInfo:
    """What `PartialReduce.sync` says of the group that answered it.

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


class PartialReduce(Reduction):
    """Averages among changing groups of ranks; made by `Communicator.partial_reduce`.

    A rank calls `sync` after each iteration, as often as it likes; the others may call it more or less often. One
    thread at a time. A rank that closes it is in no new group.

    As a context manager it is closed at the end, with the final weights. If the block raises, it is closed at once, and
    groups that this rank is in already are performed without it.

    >>> import numpy as np, pycollectives as pc
    >>> from pycollectives.testing import run_ranks
    >>> def train(comm):
    ...     weights = np.full(2, float(comm.rank))
    ...     with comm.partial_reduce(like=weights, groups=pc.RandomGroups(size=2)) as pr:
    ...         info = pr.sync(weights, timeout=30.0)
    ...     return info.group, weights.tolist()
    >>> run_ranks(2, train)
    [((0, 1), [0.5, 0.5]), ((0, 1), [0.5, 0.5])]
    """

    _collective: _core.PartialReduce | _core.DevicePartialReduce
    _specification: PartialReduceSpecification

    discards = False  # an average needs no contribution to be delivered later

    def __init__(
        self, like: BufferSpec, specification: PartialReduceSpecification, context: Context, deadline: Deadline
    ) -> None:
        """Make the engine's collective; collective."""
        from ..support.native import core

        arguments = specification.engine_arguments(context.nodes)
        self._weights: HostWeights | DeviceWeights
        if specification.device is None:
            self._collective = core.PartialReduce(context.engine, timeout=deadline.remaining(), **arguments)
            self._weights = HostWeights(self._collective, specification, like)
        else:
            self._collective = core.DevicePartialReduce(context.engine, timeout=deadline.remaining(), **arguments)
            self._weights = DeviceWeights(self._collective, specification, like)
        self._specification = specification
        self._context = context
        self._step = 0

    @classmethod
    def create(cls, context: Context, /, *, like: BufferSpec, name: object = None, **options: Any) -> Self:
        """Make one, by the arguments of `Communicator.partial_reduce`; collective."""

        def check() -> PartialReduceSpecification:
            from ..support.native import core

            specification = PartialReduceSpecification.checked(
                like,
                name=context.default_name("partial_reduce") if name is None else name,
                size=context.size,
                costs=context.costs,
                **options,
            )
            core.PartialReduce.check(
                context.engine,
                **specification.plan_arguments(context.size),
                on_device=specification.device is not None,
            )
            return specification

        return context.make("partial_reduce", check, lambda agreed, deadline: cls(like, agreed, context, deadline))

    def sync(
        self, weights: BufferSpec, step: int | None = None, timeout: float | None = None, *, stream: Any = None
    ) -> GroupInfo:
        """Average with the next group of this rank, in place; blocks until that is done.

        Parameters
        ----------
        weights
            C-contiguous, writable host memory of the count and dtype of `like`. Several arrays: see `flatten`. If the
            object was made like an array on a CUDA device: an array on that device, of the same shape.
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
            Not done in time: names the group and who has not come to it. Nothing can be synchronised any more;
            `weights` may still be changed, by a group that completes late. If it is the stream that is not done in
            time, nothing was asked for, and this may be called again.
        ClosedError
            After `close`, or after an error.
        RuntimeError
            Another thread is in a call of this object. Or a device has failed, of this rank or of one that is named.
        """
        specification = self._specification
        limit = self._context.limit(timeout)
        number = self._step if step is None else operator.index(step)
        if not 0 <= number < END_OF_STEPS:
            raise ValueError(f"{self.name}: expected 0 <= step < 2**39, got {number}")
        groups = specification.groups
        ruled: tuple[int, ...] = ()
        if isinstance(groups, StaticGroups):
            if number < self._step:  # messages tell groups apart by it
                raise ValueError(f"{self.name}: expected step >= {self._step}, after the last, got {number}")
            ruled = groups.group_of(self._context.rank, number, self._context.size)
        group, sequence, waited, conflicts = self._weights.sync(
            weights, stream, step=number, group=ruled, timeout=limit
        )
        self._step = number + 1
        return GroupInfo(group, sequence, waited, conflicts)

    def close(self, weights: BufferSpec | None = None, *, stream: Any = None) -> None:
        """Leave for good, without waiting for anybody: this rank is in no new group.

        Groups that it is in already are performed by its engine, in the background, with a copy of the final weights.
        Closing again does nothing.

        Parameters
        ----------
        weights
            The final weights; by default what the buffer holds that was passed to `sync` last, or to `like`.
        stream
            As for `sync`.
        """
        try:
            self._weights.close(weights, stream)
        finally:
            if self._collective.closed:
                self._context.forget(self)

    def abort(self) -> int:
        """Close at once; groups that this rank is in already are performed without it. Returns 0.

        `abort` returns the number of discarded contributions, and a partial reduce has none that wait.
        """
        with contextlib.suppress(RankFailedError, TransportError):  # no rank can be reached any more
            self._collective.close(None)
        self._context.forget(self)
        return 0

    @property
    def groups(self) -> AnyGroups:
        """Who says the groups."""
        return self._specification.groups

    @property
    def cache_hits(self) -> int:
        """How many groups were performed by messages with an existing plan: of their size and this rank's position."""
        return self._collective.cache_hits

    @property
    def cache_misses(self) -> int:
        """For how many it had to be made. The newest 64 are kept."""
        return self._collective.cache_misses

    def _choices(self) -> str:
        return f"groups={self.groups!r}"
