"""Warnings of long waits outside the engine, by the logger `pycollectives`; the engine's own warnings go to stderr."""

from __future__ import annotations

import logging
import math
import time

_logger = logging.getLogger("pycollectives")


class StallWarning:
    """A wait that begins now. It is reported after some seconds, and again each time its duration has doubled.

    `after`: seconds before the first report (`PYC_STALL_WARNING`), or None for no reports. `who`: this rank in the log
    line, such as "rank 0 of 3".

    >>> StallWarning(None, "rank 0 of 3").is_due()
    False
    """

    def __init__(self, after: float | None, who: str) -> None:
        self._begin = time.monotonic()
        self._next = math.inf if after is None else after
        self._who = who

    @property
    def waited(self) -> float:
        """Seconds since the wait began."""
        return time.monotonic() - self._begin

    def is_due(self, *, within: float = 0.0) -> bool:
        """Return True if the next line is due now, or `within` this many seconds."""
        return self.waited + within >= self._next

    def say(self, what: str, missing: str) -> None:
        """Log a line: the operation `what` is not complete, and waits for `missing`."""
        _logger.warning("pycollectives: %s: %s: not complete after %.3g s; %s.", self._who, what, self.waited, missing)
        self._next *= 2
