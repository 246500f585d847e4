"""The exceptions of this package.

They are plain Python classes that need neither MPI nor the extension; the extension raises these same classes.
Misuse of a single call raises the built-in `ValueError`, `TypeError` or `BufferError`, before any message is sent.
"""

from __future__ import annotations

__all__ = ["ClosedError", "MismatchError", "RankFailedError", "ScheduleError", "StallError", "TransportError"]


class ScheduleError(ValueError):
    """A plan that cannot be right; the text names the operation."""


class MismatchError(ValueError):
    """Arguments that must agree on all ranks do not, or another rank's arguments were refused.

    Raised on every rank that took part, at the creation of the object; the text names the ranks and their values.
    """


class TransportError(RuntimeError):
    """A message could not be moved: the text has MPI's error class, its explanation and the peer.

    The communicator is unusable afterwards.
    """


class RankFailedError(RuntimeError):
    """A rank that is needed has died; the text names it. The collective is unusable now."""


class StallError(TimeoutError):
    """A wait ran into its time limit: the text names the collective, the round and the ranks that have not arrived."""


class ClosedError(RuntimeError):
    """The object was closed, or MPI was finalized under it."""
