"""Find the commit with which a result was made."""

from __future__ import annotations

import subprocess
from pathlib import Path


def commit() -> str | None:
    """Return the commit of the checkout that contains this package or from which it was built; None if unknown.

    The result ends with "-dirty" if the checkout has changed since the commit.
    """
    return commit_of(Path(__file__).resolve().parents[2]) or _built_from()


def commit_of(top: Path) -> str | None:
    """Return the commit of the checkout whose folder is `top`, with "-dirty" if changed; None for other folders.

    A folder inside a checkout gives None, because a package installed there need not belong to the checkout.
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
