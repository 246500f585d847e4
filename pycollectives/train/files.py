"""Write results: valid JSON, and files that stay complete if a job is killed or a node crashes."""

from __future__ import annotations

import json
import math
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def dumps(what: Any, indent: int | None = None) -> str:
    """Return a value as JSON, with null for numbers that are not finite."""
    return json.dumps(_finite(what), indent=indent, allow_nan=False)


def replace(path: Path, text: str) -> None:
    """Replace a file atomically, after the new file is on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    new.write_text(text, encoding="utf-8")
    force(new)
    new.replace(path)
    force(path.parent)


def force(path: Path) -> None:
    """Force a file, or the names in a folder, to the disk. Ignore file systems that cannot force a folder."""
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
