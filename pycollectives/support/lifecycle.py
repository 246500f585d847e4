"""The end of a `with` block of something that all ranks close."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["exit_context"]


def exit_context(
    what: str,
    kind: type[BaseException] | None,
    *,
    close: Callable[[], None],
    abort: Callable[[], int],
    is_open: bool,
) -> None:
    """Close at the end of a block; after an exception abort, and warn of what is discarded.

    `__exit__` itself must call it: the warning names the caller of its caller, which is the user's `with` statement.

    Parameters
    ----------
    what
        The subject of the warning.
    kind
        The type of the exception that ended the block, or None.
    close
        Closes it, and waits for the other ranks. If it raises, `abort` is called before the error goes on.
    abort
        Closes it without waiting for anybody, and returns the number of contributions that no rank will get. Does
        nothing if it is closed.
    is_open
        Whether data can be lost, so that an exception leads to a warning.
    """
    if kind is None:
        try:
            close()
        finally:
            abort()
        return
    discarded = abort()
    if is_open:
        _warn(f"{what} was left by {kind.__name__}", discarded)


def _warn(what: str, discarded: int) -> None:
    noun = "contribution" if discarded == 1 else "contributions"
    text = f"{what}: closed without flush, {discarded} {noun} discarded"
    warnings.warn(text, RuntimeWarning, stacklevel=4)  # the user's `with` statement
