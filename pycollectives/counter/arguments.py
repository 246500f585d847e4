"""The arguments of a shared counter."""

from __future__ import annotations

from typing import ClassVar

import attrs

from ..arguments import Arguments
from ..support.validation import checked_integer

LAST_START = 1 << 62
"""The engine adds in 64 bits without a check."""


def _start(start: int) -> int:
    return checked_integer("start", start, at_least=0, at_most=LAST_START)


@attrs.frozen
class CounterArguments(Arguments):
    """Make a `SharedCounter`: a number that all ranks add to, so that faster ranks take more work; collective.

    Parameters
    ----------
    start
        The first value, 0 to 2^62.
    name
        The name in messages and traces. Default: numbered in the order of creation.
    timeout
        Time limit for creating it, in seconds; None for the communicator's default, `math.inf` for no limit.
    """

    service: ClassVar[str] = "counter"

    start: int = attrs.field(default=0, converter=_start)
