"""P-Reduce in a group that the caller names, and the mean over all ranks: methods of `Communicator`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, SupportsFloat

import numpy as np

from ..agreement.consistency import shortened
from ..support.buffers import array_of
from ..support.operations import AVG
from ..support.validation import checked_group
from .continuing_groups import ContinuingGroups
from .explicit import ExplicitGroups

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..collective import Creator
    from ..context import Context
    from ..support.deadline import Deadline
    from ..support.typing import Array, BufferSpec, Op

MAX_SHAPE = 200
"""Maximum length of a shape's text in characters. For longer ones, ranks compare a hash."""


@dataclass(frozen=True)
class Averaged:
    """The checked argument of `mean`: a copy that is reduced in place."""

    values: Array

    @classmethod
    def of(cls, x: SupportsFloat | BufferSpec) -> Averaged:
        """Copy `x`; raise `TypeError` unless its elements are real numbers."""
        array = np.asarray(float(x)) if isinstance(x, SupportsFloat) and getattr(x, "ndim", 0) == 0 else array_of(x)
        if array.dtype.kind == "c":
            raise TypeError(f"mean: expected real numbers, got {array.dtype}")
        return cls(np.array(array, dtype=array.dtype if array.dtype.kind == "f" else np.float64, order="C"))

    def signature(self) -> dict[str, str | int | None]:
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
    """Reduce an array in place among the ranks of a group: a P-Reduce (Ripples, section 3); collective among them.

    If `on_failure` is "continue", dead members are left out, arrays on devices raise `ValueError`, and each call copies
    `x`. If a death interrupts a P-Reduce, the survivors receive the same result.

    The other ranks take no part, and a group needs no object. Ranks must perform their common groups in the same order.
    If all members are on one node and `x` has 64 KiB or more, they reduce in shared memory.

    Parameters
    ----------
    x
        The array, C-contiguous and writable, of the same count and dtype on all members. It is in host memory on all
        members, or on a CUDA device on all members; device data is copied through the host. For several arrays, see
        `flatten`.
    group
        The members, in any order.
    op
        As for `partial_allreduce`; AVG divides by the number of members.
    timeout
        Seconds; None for the communicator's default, `math.inf` for no limit.
    stream
        Only for an array on a device: the stream on which you use it, as for `PartialReduce.average`. The call waits
        for earlier work on that stream before it joins the group. When it returns, the result is complete.

    Raises
    ------
    ValueError, TypeError
        A member is not a rank of this communicator or is listed twice, this rank is not a member, or `op` or `x` is
        invalid. Or dead ranks are replaced (`spares`, `respawn`).
    BufferError
        `x` is read-only or not C-contiguous. In this case and the one above, the other members of a valid group raise
        `MismatchError` with the reason, no data is sent, and all may call again.
    StallError
        The result is not complete in time; the message names the group and the missing members. `x` may still change if
        they arrive late. If only the stream was not done in time, no member was affected, and you may call
        `preduce` again.
    MismatchError
        A member is in a different P-Reduce with this rank: with other members, in another order, with another count,
        dtype or `op`, or with an array on the host while others are on devices. Or it is in a different call, such as
        `mean`, or its arguments were invalid.
    RankFailedError
        A rank of this node that has been in a group with this rank has died.
    RuntimeError
        Shared memory or device memory cannot be allocated. Or the device of this rank or of a named member has failed
        and lost a part of the result, so that `x` may be partly overwritten. Or all ranks are members, and this thread
        has contributed to a partial allreduce without flushing it, so that ranks could deadlock.
    ClosedError
        The communicator is closed, here or on a member; or an earlier P-Reduce failed, here or on a member. After such
        an error this rank cannot perform P-Reduces on this communicator. Its other collectives continue.

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
    context.check_newcomers("preduce")
    context.rendezvous.check_open()
    members = checked_group(group, context.communicator.rank, context.communicator.size)
    _groups(context).reduce(x, members, op, timeout, stream, caller="preduce")


def c_preduce(comm: Creator, count: int, dtype: str, op: str) -> object:
    """Return the handle for calls of `preduce` from C: a capsule that lives as long as the communicator.

    Parameters
    ----------
    count, dtype
        The number of elements of the arrays, and the name of their type.
    op
        The name of the operation.
    """
    context = comm._context
    context.rendezvous.check_open()
    if context.membership is not None:
        raise TypeError(
            "preduce: calls from C cannot continue after a death: expected a communicator with on_failure='raise', "
            "got on_failure='continue'"
        )
    return context.part(ExplicitGroups).c_handle(count, dtype, op)


def mean(comm: Creator, x: SupportsFloat | BufferSpec, *, timeout: float | None = None) -> float | Array:
    """Return the mean over all ranks of a number, or of an array element by element; collective.

    Use it for metrics, such as a loss. Every rank waits for all others: `flush` open partial allreduces first, or use
    `EagerOptimizer.average`, which flushes.

    Parameters
    ----------
    x
        A number, or host memory of any shape; the shape must be the same on all ranks. Integers are averaged as
        float64.
    timeout
        Seconds; None for the communicator's default, `math.inf` for no limit.

    Returns
    -------
    float or ndarray
        A float if `x` is a number, otherwise a new array of the shape of `x`. It has the same bits on all ranks.

    Raises
    ------
    RuntimeError
        This thread has contributed to a partial allreduce without flushing it, so that ranks could deadlock.
    TypeError, BufferError
        This rank's `x` is invalid. The other ranks raise `MismatchError`.
    MismatchError
        Shapes or dtypes differ between ranks, ranks make different calls, or another rank's `x` is invalid.
    StallError, ClosedError
        As for the creation of a collective. Afterwards, neither `mean` nor a new collective is possible on this
        communicator.
    RankFailedError
        As for `preduce`.

    >>> from pycollectives.testing import run_ranks
    >>> run_ranks(4, lambda comm: comm.mean(comm.rank))
    [1.5, 1.5, 1.5, 1.5]
    """
    context = comm._context
    context.check_flushed("mean")
    if context.membership is not None:
        values = context.membership.reduce("mean", lambda: Averaged.of(x).values, AVG, timeout).copy()
        return values if values.ndim else float(values)

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
    """Reduce in place among all ranks; collective. `caller` is the name of the call that all ranks make."""
    context = comm._context
    if context.membership is not None:
        array = array_of(x)
        array[...] = context.membership.reduce(caller, lambda: array, op, timeout)
        return
    context.part(ExplicitGroups).reduce(x, range(context.size), op, timeout, caller=caller)


def plan_cache(comm: Creator) -> tuple[int, int]:
    """Return the numbers of `preduce` calls that reused a plan and that made a new one."""
    return _groups(comm._context).cache


def _groups(context: Context) -> ExplicitGroups | ContinuingGroups:
    return context.part(ExplicitGroups) if context.membership is None else context.part(ContinuingGroups)
