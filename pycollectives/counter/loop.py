"""A training loop that ends by time, or by the work of all ranks together."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from ..support.validation import checked_integer, checked_timeout
from .collective import MOST_AT_ONCE, SharedCounter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Self


def until(
    *,
    seconds: float | None = None,
    examples: int | None = None,
    counter: SharedCounter | None = None,
    batch: int = 1,
) -> Iterator[int]:
    """Iterate over this rank's steps until a time has passed, or all ranks together have taken a number of examples.

    A rank that is twice as fast takes twice as many steps, unless ranks wait for each other in every step, as under
    `Full`. After the loop, flush or leave collectives in which other ranks may wait for this one.

    Parameters
    ----------
    seconds
        The loop begins no step later than this many seconds after its first one, by this rank's clock.
    examples
        The loop ends when the steps of all ranks have taken this many examples, at least 0; needs `counter`. The last
        step may take more examples than are left.
    counter
        Made by `Communicator.counter`, for this loop only. With a counter that begins at more than 0, the loop
        continues an earlier loop.
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
        As for `SharedCounter.fetch_add`. After a StallError, `next` on the same iterator tries again.

    >>> import pycollectives as pc
    >>> from pycollectives.testing import run_ranks
    >>> def program(comm):
    ...     return sum(1 for step in pc.until(examples=96, counter=comm.counter(), batch=32))
    >>> sum(run_ranks(2, program))
    3
    """
    limit = checked_timeout(seconds, "seconds")
    if limit is None and examples is None:
        raise ValueError("until: expected seconds, examples, or both; got neither, and the loop would never end")
    if (examples is None) != (counter is None):
        raise ValueError("until: expected examples and counter together, got one of them")
    if counter is not None and not isinstance(counter, SharedCounter):
        raise TypeError(f"counter: expected the result of Communicator.counter(), got {counter!r}")
    if counter is None and batch != 1:
        raise ValueError(f"batch: expected 1 without a counter, got {batch!r}")
    most = math.inf if examples is None else checked_integer("examples", examples, at_least=0)
    return _Steps(limit, most, counter, checked_integer("batch", batch, at_least=1, at_most=MOST_AT_ONCE))


class _Steps:
    """The iterator. After StallError, `next` makes the same call again."""

    def __init__(self, seconds: float | None, examples: float, counter: SharedCounter | None, batch: int) -> None:
        self._seconds = math.inf if seconds is None else seconds
        self._examples, self._counter, self._batch = examples, counter, batch
        self._begin: float | None = None
        self._step = -1

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> int:
        now = time.monotonic()
        self._begin = now if self._begin is None else self._begin
        if now - self._begin >= self._seconds:
            raise StopIteration
        if self._counter is not None and self._counter.fetch_add(self._batch) >= self._examples:
            raise StopIteration
        self._step += 1
        return self._step
