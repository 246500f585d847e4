"""The extension, which is loaded when it is first used: `import pycollectives` works in a tree that was not built."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["extension"]


def extension() -> ModuleType:
    """Return `pycollectives._zipline`; `ImportError` says how to get it."""
    try:
        from .. import _zipline
    except ImportError as error:
        raise ImportError(
            f"the extension pycollectives._zipline cannot be loaded: {error}. Build it: `pip install .`"
        ) from error
    return _zipline
