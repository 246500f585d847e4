"""The exceptions of this package.

They are plain Python classes that need neither MPI nor the extension; the extension raises these same classes.
Misuse of a single call raises the built-in `ValueError`, `TypeError` or `BufferError`, before any message is sent.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Self

__all__ = ["ClosedError", "MismatchError", "RankFailedError", "ScheduleError", "StallError", "TransportError"]


class ScheduleError(ValueError):
    """An invalid plan of messages; the error's text names the operation."""


class MismatchError(ValueError):
    """Arguments differ between ranks but must be the same, or another rank's arguments were refused.

    Every rank that took part in the creation or comparison raises it. The error's text names the ranks and their
    values.
    """


class TransportError(RuntimeError):
    """A message could not be sent or received. The communicator is unusable afterwards.

    The error's text has MPI's error class, its explanation and the peer.
    """


class RankFailedError(RuntimeError):
    """A rank that the call needs has died; the error's text names it. The collective is unusable now.

    Attributes
    ----------
    ranks : tuple of int
        The dead ranks that this rank knows of, ascending. Empty if MPI does not report them: see docs/faults.md.
    """

    def __init__(self, text: str = "", ranks: Sequence[int] = ()) -> None:
        super().__init__(text)
        self.ranks = tuple(ranks)

    def __reduce__(self) -> tuple[type[Self], tuple[str, tuple[int, ...]]]:
        return type(self), (str(self), self.ranks)


class StallError(TimeoutError):
    """A wait reached its time limit; the error's text names the collective, the round and the missing ranks.

    If `PYC_DUMP_DIR` is set, the library writes the flight record of this process there, and the text names the file.
    """

    _record: str | None = None

    def advise(self, advice: str) -> None:
        """Add a sentence to the error's text."""
        self.args = (f"{str(self).rstrip('.')}. {advice}",)

    @property
    def record(self) -> dict[str, Any] | None:
        """The flight record of this process at the time of the error; None if the library did not raise it.

        Its `communicators` are in the form of `Communicator.flight_record`.
        """
        return None if self._record is None else json.loads(self._record)


class ClosedError(RuntimeError):
    """The object was closed, or MPI was finalized while it was open."""
