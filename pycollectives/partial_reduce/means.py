"""P-Reduce in a group that the caller names, and the mean over all ranks: methods of `Communicator`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, SupportsFloat

import numpy as np

from ..agreement.consistency import shortened
from ..support.buffers import array_of
from ..support.operations import AVG
from ..support.validation import checked_group
from .explicit import ExplicitGroups

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..collective import Creator
    from ..support.deadline import Deadline
    from ..support.typing import Array, BufferSpec, Op

__all__ = ["mean", "plan_cache", "preduce", "reduce_on_all_ranks"]

MAX_SHAPE = 200
"""Characters of a shape; of a longer one a hash is compared."""


@dataclass(frozen=True)
class Averaged:
    """The checked argument of `mean`: a copy, which is reduced in place."""

    values: Array

    @classmethod
    def of(cls, x: SupportsFloat | BufferSpec) -> Averaged:
        """Copy it; `TypeError` if it is not real."""
        array = np.asarray(float(x)) if isinstance(x, SupportsFloat) and getattr(x, "ndim", 0) == 0 else array_of(x)
        if array.dtype.kind == "c":
            raise TypeError(f"mean: expected real numbers, got {array.dtype}")
        return cls(np.array(array, dtype=array.dtype if array.dtype.kind == "f" else np.float64, order="C"))

    def signature(self) -> dict[str, str | int | None]:
        """See `agreement.Signed`."""
        return {"shape": shortened(str(self.values.shape), MAX_SHAPE), "dtype": self.values.dtype.name}


def preduce(
    comm: Creator,
    x: BufferSpec,
    group: Iterable[int],
    op: Op = AVG,
    *,
    timeout: float | None = None,
    stream: Any = None,
) -> None:
    """Reduce in place among exactly the ranks of a group: a P-Reduce; collective among them (Ripples, section 3).

    Nobody else takes part, and nothing is created for a group. Ranks must perform the groups that they have in
    common in the same order. Members that are all of one node meet in shared memory if `x` is long, from 64 KiB on.

    Parameters
    ----------
    x
        C-contiguous and writable, of the same count and dtype on all members: memory of the host, or on all members
        arrays on CUDA devices, which go through the host. Several arrays: see `flatten`.
    group
        The members, in any order.
    op
        As for `partial_allreduce`; AVG divides by the number of members.
    timeout
        Seconds; None for the communicator's default.
    stream
        Only of an array on a device: the stream on which you work with it, as for `PartialReduce.average`. The call
        waits for what that stream was given before, then comes to the group; on return the result is there.

    Raises
    ------
    ValueError, TypeError
        A member is no rank of this communicator, is there twice, or this rank is not; `op` or `x` is refused.
    BufferError
        `x` is read-only or not C-contiguous. In these cases the other members of a valid group raise
        `MismatchError` with the reason, no data is sent, and all may call again.
    StallError
        Not done in time: names the group and who has not come. `x` may still be changed, if they come late. If the
        stream is not done in time, nothing was said to the others, and this may be called again.
    MismatchError
        A member is in another P-Reduce with this rank: other members, another order, count, dtype or `op`, or with
        an array on the host where others are on devices. Or it is in another call, such as `mean`; or its call was
        refused.
    RankFailedError
        A rank of this node that this one has met in a group has died.
    RuntimeError
        Shared memory, or memory for an array on a device, cannot be had. A device has failed, of this rank or of a
        member that is named, which has lost a part of the result; `x` may be overwritten in part. Or all ranks are
        members, and a partial allreduce on which this thread has contributed is not flushed: ranks could wait for
        each other.
    ClosedError
        The communicator is closed, here or on a member; or an earlier P-Reduce ended by an error, here or on a
        member. After such an error this rank can perform no P-Reduce on this communicator any more; what else is
        open on it goes on.

    >>> import numpy as np
    >>> from pycollectives.testing import run_ranks
    >>> def program(comm):
    ...     x = np.full(2, float(comm.rank))
    ...     if comm.rank != 1:
    ...         comm.preduce(x, group=[2, 0])
    ...     return x.tolist()
    >>> run_ranks(3, program)
    [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]
    """
    context = comm._context
    context.rendezvous.check_open()
    members = checked_group(group, context.rank, context.size)
    context.part(ExplicitGroups).reduce(x, members, op, timeout, stream, caller="preduce")


def mean(comm: Creator, x: SupportsFloat | BufferSpec, *, timeout: float | None = None) -> float | Array:
    """Return the mean over all ranks of a number, or of an array element by element; collective.

    For metrics, such as a loss. All ranks wait for all: before it, `flush` the partial allreduces that are open, or
    use `EagerOptimizer.average`, which does.

    Parameters
    ----------
    x
        A number, or host memory of any shape, the same on all ranks. Integers are averaged as float64.
    timeout
        Seconds; None for the communicator's default.

    Returns
    -------
    float or ndarray
        A number for a number, else a new array of the shape of `x`. The same bits on all ranks.

    Raises
    ------
    RuntimeError
        A partial allreduce on which this thread has contributed is not flushed: ranks could wait for each other.
    TypeError, BufferError
        `x` is refused: on this rank. The others raise `MismatchError`.
    MismatchError
        Shapes or dtypes differ between ranks, ranks make different calls, or another rank's `x` was refused.
    StallError, ClosedError
        As making a collective: on this communicator neither `mean` nor a new collective is possible afterwards.
    RankFailedError
        As `preduce`.

    >>> from pycollectives.testing import run_ranks
    >>> run_ranks(4, lambda comm: comm.mean(comm.rank))
    [1.5, 1.5, 1.5, 1.5]
    """
    context = comm._context
    context.check_flushed("mean")

    def checked() -> Averaged:
        context.limit(timeout)
        return Averaged.of(x)

    def average(agreed: Averaged, deadline: Deadline) -> Array:
        values = agreed.values.reshape(-1)
        context.part(ExplicitGroups).reduce(values, range(context.size), AVG, deadline.remaining(), caller="mean")
        return agreed.values

    with context.rendezvous.within(context.deadline_of(timeout)):
        values = context.rendezvous.make("mean", checked, average)
    return values if values.ndim else float(values)


def reduce_on_all_ranks(comm: Creator, x: BufferSpec, op: Op, timeout: float | None, *, caller: str) -> None:
    """Reduce in place among all ranks, which all make the call `caller`."""
    context = comm._context
    context.part(ExplicitGroups).reduce(x, range(context.size), op, timeout, caller=caller)


def plan_cache(comm: Creator) -> tuple[int, int]:
    """Return how many calls of `preduce` found an existing plan, and how many needed a new one."""
    return comm._context.part(ExplicitGroups).cache
