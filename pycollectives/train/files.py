"""How results are written: valid JSON, and files that are whole whenever a job is killed, or a node crashes."""

from __future__ import annotations

import json
import math
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["dumps", "force", "replace"]


def dumps(what: Any, indent: int | None = None) -> str:
    """Return it as JSON, which has no numbers that are not finite: null instead."""
    return json.dumps(_finite(what), indent=indent, allow_nan=False)


def replace(path: Path, text: str) -> None:
    """Put a file in another's place in one step, when it is on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    new.write_text(text, encoding="utf-8")
    force(new)
    new.replace(path)
    force(path.parent)


def force(path: Path) -> None:
    """Have a file, or the names in a folder, written to the disk; not every file system can do the latter."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        if path.is_file():
            raise
    finally:
        os.close(descriptor)


def _finite(what: Any) -> Any:
    if isinstance(what, dict):
        return {key: _finite(value) for key, value in what.items()}
    if isinstance(what, list | tuple):
        return [_finite(value) for value in what]
    return None if isinstance(what, float) and not math.isfinite(what) else what
