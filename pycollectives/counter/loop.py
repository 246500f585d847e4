"""A training loop that ends by time, or by the work of all ranks together."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ..support.validation import checked_integer, checked_timeout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .collective import SharedCounter

__all__ = ["until"]


def until(
    *,
    seconds: float | None = None,
    examples: int | None = None,
    counter: SharedCounter | None = None,
    batch: int = 1,
) -> Iterator[int]:
    """Iterate over this rank's steps until a time is over, or all ranks together have taken a number of examples.

    A rank that is twice as fast takes twice as many steps, unless ranks wait for each other in every step, as under
    `Full`. After the loop, flush or leave collectives in which other ranks may wait for this one.

    Parameters
    ----------
    seconds
        The loop begins no step later than this many seconds after its first one. On this rank's clock.
    examples
        The loop ends when the steps of all ranks have taken this many examples. At least 0. Needs `counter`. The last
        step may take more than are left.
    counter
        Made by `Communicator.counter`, for this loop only. With a counter that begins at more than 0, the loop
        continues an earlier one.
    batch
        The examples of a step of this rank, 1 or more; needs `counter`.

    Yields
    ------
    int
        The number of the step, counted from 0 on this rank.

    Raises
    ------
    ValueError, TypeError
        An argument is refused, or there is neither `seconds` nor `examples`.
    StallError, ClosedError, RankFailedError
        As `SharedCounter.fetch_add`.

    >>> import pycollectives as pc
    >>> from pycollectives.testing import run_ranks
    >>> def program(comm):
    ...     return sum(1 for step in pc.until(examples=96, counter=comm.counter(), batch=32))
    >>> sum(run_ranks(2, program))
    3
    """
    limit = checked_timeout(seconds, "seconds")
    if limit is None and examples is None:
        raise ValueError("until: expected seconds, examples, or both; got neither, so that the loop would not end")
    if (examples is None) != (counter is None):
        raise ValueError("until: expected examples and counter together, got one of them")
    most = None if examples is None else checked_integer("examples", examples, at_least=0)
    return _steps(limit, most, counter, checked_integer("batch", batch, at_least=1))


def _steps(seconds: float | None, examples: int | None, counter: SharedCounter | None, batch: int) -> Iterator[int]:
    begin = time.monotonic()
    step = 0
    while seconds is None or time.monotonic() - begin < seconds:
        if counter is not None and examples is not None and counter.fetch_add(batch) >= examples:
            return
        yield step
        step += 1
