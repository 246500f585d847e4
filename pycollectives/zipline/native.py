"""The extension, loaded at first use, so that `import pycollectives` works in a source tree without it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType


def extension() -> ModuleType:
    """Return `pycollectives._zipline`; an `ImportError` tells how to build it."""
    try:
        from .. import _zipline
    except ImportError as error:
        raise ImportError(
            f"the extension pycollectives._zipline cannot be loaded: {error}. Build it: `pip install .`"
        ) from error
    return _zipline
