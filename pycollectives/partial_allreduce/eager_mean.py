"""Eager-SGD's mean of gradients, by a partial allreduce (section 5, Algorithm 2); for `train` and `torch`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from ..support.operations import AVG

if TYPE_CHECKING:
    from .._core import Round
    from ..communicator import Communicator
    from ..support.typing import Missed
    from .collective import PartialAllreduce

__all__ = ["DivideBy", "EagerMean", "check_divide_by"]

DivideBy: TypeAlias = Literal["world", "contributors"]
"""By what a sum of gradients is divided: by all ranks, as in the paper, or by those that are in the round."""


def check_divide_by(divide_by: object) -> None:
    """Raise ValueError if it is no `DivideBy`."""
    if divide_by not in ("world", "contributors"):
        raise ValueError(f"divide_by: expected 'world' or 'contributors', got {divide_by!r}")


class EagerMean:
    """The mean over ranks of arrays, some of which come late; made collectively.

    Arrays are NumPy's, or what a derived class takes in their place.

    Parameters
    ----------
    comm
        All ranks.
    like
        An array of the shape and type of each contribution.
    divide_by
        See `DivideBy`.
    missed
        What a rank that is behind is given: "sum", all means that it missed, or "latest", the newest alone.
    flushed_by
        What the application calls to flush it, for messages.
    options
        Of `Communicator.partial_allreduce`: `policy`, `late`, `max_staleness`, `history`, `name`.
    """

    def __init__(
        self,
        comm: Communicator,
        like: Any,
        *,
        divide_by: DivideBy = "world",
        missed: Missed = "sum",
        flushed_by: str | None = None,
        **options: Any,
    ) -> None:
        check_divide_by(divide_by)
        self._size = comm.size
        self._divisor = comm.size if divide_by == "world" else 1
        self._sums = missed == "sum"
        op = "SUM" if divide_by == "world" else AVG
        self._collective = comm.partial_allreduce(like, op=op, missed=missed, **options)
        self._collective.flushed_by = flushed_by

    @property
    def waits_for_arrivals(self) -> bool:
        """Whether a rank may wait for others that have contributed as often as it has."""
        return self._collective.policy.waits_for_arrivals(self._size)

    @property
    def rounds(self) -> int:
        """How many rounds have completed, as far as this rank knows."""
        return self._collective.rounds

    def contribute(self, gradient: Any) -> Round:
        """Hand this rank's gradient over; the handle completes when there is a mean for this rank."""
        return self._collective.contribute(gradient)

    def write_to(self, out: Any) -> Any:
        """Write the newest mean that this rank was given into an array, and return it."""
        return np.divide(self._collective.result, self._divisor, out=out)

    def add_to(self, out: Any) -> None:
        """Add the newest mean that this rank was given to an array."""
        out += self._collective.result / self._divisor

    def start_flush(self) -> None:
        """Leave: from now on no rank waits for this one."""
        self._collective.start_flush()

    def flush(self, *, timeout: float | None = None) -> bool:
        """Deliver all that still waits; collective. Whether this rank is owed a mean, which is then the newest.

        Owed is the mean of a last round, of all gradients that waited, and, under missed="sum", the rounds that this
        rank had missed. If there is neither, there is no mean, which is not a mean of 0.
        """
        info = self._collective.flush(timeout=timeout)
        return bool(info.contributors) or (self._sums and info.missed > 0)

    def leave(self) -> None:
        """Take no further part; without waiting."""
        self._collective.leave()

    @property
    def collective(self) -> PartialAllreduce:
        """The partial allreduce that it stands on."""
        return self._collective

    def abort(self) -> int:
        """Leave at once; the number of contributions that are discarded."""
        return self._collective.abort()
