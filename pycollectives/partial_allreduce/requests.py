"""Waiting for several rounds at once."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from ..support.deadline import Deadline
from ..support.validation import checked_timeout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._core import Round, RoundInfo
    from ..mpi_api import PartialRequest

__all__ = ["wait_all", "wait_any"]

_YIELDS = 200
"""Passes of `wait_any` that only yield the processor, before it sleeps between passes."""

_NAP = 50e-6
"""Seconds that `wait_any` sleeps between two passes."""


def wait_all(rounds: Sequence[Round | PartialRequest], timeout: float | None = None) -> list[RoundInfo]:
    """Wait until all rounds are done.

    Parameters
    ----------
    rounds
        Handles that `contribute` returned, or requests of `Allreduce_init`, of one or more collectives.
    timeout
        Seconds for all of them together; None for the default of the communicator that the first is of.

    Returns
    -------
    list of RoundInfo
        One for each, in the order given.

    Raises
    ------
    StallError
        At the first that is not done in time; names its collective, round and the ranks that are missing.
    """
    deadline = _deadline(rounds, timeout)
    return [handle.wait(deadline.remaining()) for handle in rounds]


def wait_any(rounds: Sequence[Round | PartialRequest], timeout: float | None = None) -> int:
    """Wait until one of the rounds is done and return its index: the lowest, if several are.

    A handle that is done stays done, so take it out of the sequence before the next call. Inactive requests of
    `Allreduce_init` are ignored, as in MPI_Waitany.

    Parameters
    ----------
    rounds
        Handles that `contribute` returned, or requests of `Allreduce_init`, of one or more collectives.
    timeout
        Seconds; None for the default of the communicator that the first active one is of.

    Raises
    ------
    ValueError
        If there are none, or all are inactive.
    StallError
        None is done in time; the text is that of the first active one.
    """
    if not rounds:
        raise ValueError("wait_any: expected at least one round, got none")
    active = [(index, handle) for index, handle in enumerate(rounds) if getattr(handle, "active", True)]
    if not active:
        raise ValueError("wait_any: expected a request that was started, got only inactive ones")
    deadline = _deadline([handle for _, handle in active], timeout)
    passes = 0
    while True:
        for index, handle in active:
            if handle.test():
                return index
        if deadline.passed:
            active[0][1].wait(0.0)  # raises, with the collective's own account; or it is done by now
            return active[0][0]
        passes += 1
        time.sleep(0 if passes <= _YIELDS else _NAP)


def _deadline(rounds: Sequence[Round | PartialRequest], timeout: float | None) -> Deadline:
    limit = checked_timeout(timeout)
    if limit is None and rounds:
        limit = rounds[0].default_timeout
    return Deadline(math.inf if limit is None else limit)
