"""Which commit a result was made with."""

from __future__ import annotations

import subprocess
from pathlib import Path

__all__ = ["commit", "commit_of"]


def commit() -> str | None:
    """Return the commit of this package: of the checkout that it lies in, or was built from; None if neither is known.

    "-dirty" is behind it if the checkout was changed since.
    """
    return commit_of(Path(__file__).resolve().parents[2]) or _built_from()


def commit_of(top: Path) -> str | None:
    """Return the commit of the checkout whose top folder this is, with "-dirty" if it was changed since; else None.

    A folder inside a checkout has none: what is installed there need not belong to it.
    """
    try:
        if Path(_git(top, "rev-parse", "--show-toplevel")).resolve() != top.resolve():
            return None
        return _git(top, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _built_from() -> str | None:
    try:
        from .._version import commit as built
    except ImportError:  # a source tree that was not built
        return None
    return None if built == "unknown" else built
