"""Eager-SGD's mean of gradients (section 5, Algorithm 2), for the packages `train` and `torch`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from ..support.operations import AVG

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._core import Round, RoundInfo
    from ..communicator import Communicator
    from ..support.typing import Missed
    from .collective import PartialAllreduce
    from .recovery import Unused

DivideBy: TypeAlias = Literal["world", "contributors"]
"""The divisor of a sum of gradients: the number of all ranks, as in the paper, or only of contributors."""


def check_divide_by(divide_by: object) -> None:
    """Raise ValueError unless the argument is a `DivideBy`."""
    if divide_by not in ("world", "contributors"):
        raise ValueError(f"divide_by: expected 'world' or 'contributors', got {divide_by!r}")


class EagerMean:
    """The mean over ranks of arrays that may arrive late; creating it is collective.

    Arrays are NumPy arrays, unless a derived class takes others. A rank that is behind gets the sum of all missed means
    if `missed` is "sum", or only the newest mean if it is "latest". `flushed_by` is the text of messages for the
    call that flushes the collective. `options` are `policy`, `late`, `max_staleness`, `history` and `name` of
    `Communicator.partial_allreduce`.
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
        self._comm = comm
        # The members may change between a round and its result, so that ranks could divide by different numbers.
        self._divides_first = divide_by == "world" and comm.on_failure == "continue"
        self._divisor = comm.size if divide_by == "world" and not self._divides_first else 1
        self._sums = missed == "sum"
        op = "SUM" if divide_by == "world" else AVG
        self._collective = comm.partial_allreduce(like, op=op, missed=missed, **options)
        self._collective.flushed_by = flushed_by

    @property
    def waits_for_arrivals(self) -> bool:
        """Whether a rank can wait for other ranks although all have contributed equally often."""
        return self._collective.policy.waits_for_arrivals(len(self._comm.members))

    @property
    def rounds(self) -> int:
        """The number of complete rounds that this rank knows of."""
        return self._collective.rounds

    def contribute(self, gradient: Any) -> Round:
        """Contribute this rank's gradient; the request completes when this rank has a mean."""
        return self._collective.contribute(gradient / len(self._comm.members) if self._divides_first else gradient)

    def write_to(self, out: Any) -> Any:
        return np.divide(self._collective.result, self._divisor, out=out)

    def add_to(self, out: Any) -> None:
        out += self._collective.result / self._divisor

    def start_flush(self) -> None:
        """Announce a `flush`: from now on no rank waits for this rank."""
        self._collective.start_flush()

    def flush(self, *, timeout: float | None = None) -> RoundInfo | None:
        """Deliver all pending gradients; collective. Return the last round if this rank has a new mean, otherwise None.

        The new mean is from a last round with all pending gradients and, under missed="sum", includes the rounds that
        this rank missed. If no gradient is pending and no round was missed, there is no new mean, not a mean of 0.
        """
        info = self._collective.flush(timeout=timeout)
        return info if info.contributors or (self._sums and info.missed > 0) else None

    def show_unused(self, unused: Callable[[], Unused | None]) -> None:
        """Register a function that returns the unused results, for ranks that replace dead ones."""
        if self._comm.on_failure == "continue":
            self._collective.recoverable.unused = unused

    def leave(self) -> None:
        self._collective.leave()

    @property
    def collective(self) -> PartialAllreduce:
        return self._collective

    def abort(self) -> int:
        return self._collective.abort()
