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
    """A plan that cannot be right; the text names the operation."""


class MismatchError(ValueError):
    """Arguments that must agree on all ranks do not, or another rank's arguments were refused.

    Raised on every rank that took part in the call, which is the creation of an object or another comparison of what
    ranks have; the text names the ranks and their values.
    """


class TransportError(RuntimeError):
    """A message could not be moved: the text has MPI's error class, its explanation and the peer.

    The communicator is unusable afterwards.
    """


class RankFailedError(RuntimeError):
    """A rank that is needed has died; the text names it. The collective is unusable now.

    Attributes
    ----------
    ranks : tuple of int
        Who has died, as far as this rank can see, ascending. Empty if MPI does not tell: see docs/faults.md.
    """

    def __init__(self, text: str = "", ranks: Sequence[int] = ()) -> None:
        """Make one."""
        super().__init__(text)
        self.ranks = tuple(ranks)

    def __reduce__(self) -> tuple[type[Self], tuple[str, tuple[int, ...]]]:
        """Return what copies are made of."""
        return type(self), (str(self), self.ranks)


class StallError(TimeoutError):
    """A wait ran into its time limit: the text names the collective, the round and the ranks that have not arrived.

    With `PYC_DUMP_DIR` set, the flight record of this process has been written there, and the text names the file.
    """

    _record: str | None = None

    def advise(self, advice: str) -> None:
        """Add a sentence to the text."""
        self.args = (f"{str(self).rstrip('.')}. {advice}",)

    @property
    def record(self) -> dict[str, Any] | None:
        """The flight record of this process at that moment; its `communicators` are as of `Communicator.flight_record`.

        None if the library did not raise the error.
        """
        return None if self._record is None else json.loads(self._record)


class ClosedError(RuntimeError):
    """The object was closed, or MPI was finalized under it."""
