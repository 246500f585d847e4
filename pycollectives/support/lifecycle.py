"""How a `with` block of something that all ranks close is left."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["leave"]


def leave(
    what: str,
    kind: type[BaseException] | None,
    *,
    close: Callable[[], None],
    abort: Callable[[], int],
    is_open: bool,
) -> None:
    """Close at the end of a block; after an exception abort, and warn of what is discarded.

    To be called by `__exit__` itself: the warning names the caller of its caller, the user's `with` statement.

    Parameters
    ----------
    what
        Of which the warning speaks, while it is open.
    kind
        Of the exception that the block was left by; None: by none.
    close
        Waits for the other ranks. What it raises is raised here, after it was aborted.
    abort
        Waits for nobody; returns how many contributions no rank will get. It does nothing to what is closed.
    is_open
        Whether something can have been lost, and is worth a warning.
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
