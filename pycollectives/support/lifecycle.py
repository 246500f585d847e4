"""The end of a `with` block of an object that all ranks close."""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING, Protocol

from .errors import MismatchError, RankFailedError, TransportError

if TYPE_CHECKING:
    from ..context import Context


class Closing(Protocol):
    """An object that a `with` block closes."""

    @property
    def name(self) -> str:
        """The name in messages."""

    @property
    def closed(self) -> bool:
        """Whether this rank no longer takes part."""

    def close(self) -> None:
        """Close the object, and wait for the other ranks."""

    def abort(self) -> int:
        """Close the object without waiting; return the number of discarded contributions: 0 if closed before."""


def exit_context(
    what: str,
    kind: type[BaseException] | None,
    closing: Closing,
    context: Context,
    *,
    is_open: bool,
) -> None:
    """Close an object at the end of a block; after an exception, abort it, notify other ranks, and warn of lost data.

    Only `__exit__` may call it: the warning names the caller of its caller, which is the user's `with` statement.
    `what` is the subject of the warning, `kind` the type of the exception that ended the block, or None. If
    `closing.close` raises, `abort` is called before the error propagates. `is_open`: whether data can be lost, so that
    an exception leads to a warning.
    """
    if kind is None:
        try:
            closing.close()
        finally:
            closing.abort()
        return
    if not closing.closed and not issubclass(kind, MismatchError | RankFailedError):  # all ranks raise these
        with contextlib.suppress(RankFailedError, TransportError):  # no rank can be reached any longer
            context.engine.announce(f"left {closing.name!r} by {kind.__name__}")
    discarded = closing.abort()
    if is_open:
        _warn(f"{what} ended with {kind.__name__}", discarded)


def _warn(what: str, discarded: int) -> None:
    noun = "contribution" if discarded == 1 else "contributions"
    text = f"{what}: closed without flush, {discarded} {noun} discarded"
    warnings.warn(text, RuntimeWarning, stacklevel=4)  # the user's `with` statement
