"""A time limit that several waits share."""

from __future__ import annotations

import time


class Deadline:
    """The time `timeout` seconds from now; never if `timeout` is None.

    >>> Deadline(None).remaining() is None
    True
    """

    def __init__(self, timeout: float | None) -> None:
        self._end = None if timeout is None else time.monotonic() + timeout

    def remaining(self) -> float | None:
        """Return the seconds left, at least 0.0, or None for no limit."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    def at_least(self, seconds: float) -> Deadline:
        """Return this deadline, or a later one that is at least `seconds` away."""
        left = self.remaining()
        return self if left is None or left >= seconds else Deadline(seconds)

    def extend(self, seconds: float) -> None:
        """Postpone the deadline by the time of a wait that has its own limit."""
        if self._end is not None:
            self._end += seconds

    @property
    def passed(self) -> bool:
        """Whether no time is left."""
        return self.remaining() == 0.0
