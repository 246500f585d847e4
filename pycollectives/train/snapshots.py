"""Files of one rank with arrays from the ends of epochs, which stay until all steps are taken.

The arrays are in files because all of them may not fit into memory.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .files import force

if TYPE_CHECKING:
    from collections.abc import Mapping


END = "end"
"""The name that sorts last: digits sort before letters."""

UNFINISHED = "unfinished"
"""A file that is being written: sorts after the last name, so no run keeps it."""


class Snapshots:
    """The files `NAME.npz` of a folder, sorted by name. If `folder` is None, the folder is temporary, until `close`."""

    def __init__(self, folder: Path | None, steps_per_epoch: int) -> None:
        self._temporary = None
        if folder is None:
            self._temporary = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
            folder = Path(self._temporary.name)
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self._steps_per_epoch = folder, steps_per_epoch
        self._unforced: list[Path] = []
        self._epochs = 0  # that have ended

    def go_on(self, position: int, newest: str) -> None:
        """Keep only the files up to the name `newest`, and continue from step `position`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._epochs = position // self._steps_per_epoch
        for path in self.folder.glob("*.npz"):
            if path.stem > newest:
                path.unlink()
        self._unforced = list(self.folder.glob("*.npz")) if self._temporary is None else []

    def ends_epoch(self, steps: int) -> bool:
        """Whether an epoch has ended since the previous call, now that `steps` steps are complete."""
        before, self._epochs = self._epochs, steps // self._steps_per_epoch
        return self._epochs > before

    @property
    def end_of_epoch(self) -> int:
        """The number of steps after which the newest epoch ended."""
        return self._epochs * self._steps_per_epoch

    def keep(self, name: str, arrays: Mapping[str, Any]) -> None:
        """Write `arrays` to the file `name`."""
        new, path = self.folder / f"{UNFINISHED}.npz", self.path(name)
        np.savez(new, **arrays)
        new.replace(path)
        if self._temporary is None:
            self._unforced.append(path)

    def path(self, name: str) -> Path:
        """Return the path of a file."""
        return self.folder / f"{name}.npz"

    def names(self) -> list[str]:
        """Return the names of the files, sorted."""
        return sorted(path.stem for path in self.folder.glob("*.npz"))

    def flush(self) -> None:
        """Force the files to the disk, for runs that continue from a later checkpoint."""
        for path in self._unforced:
            force(path)
        force(self.folder)
        self._unforced.clear()

    def remove(self) -> None:
        """Delete the files and their folder, which `go_on` creates again."""
        for name in self.names():
            self.path(name).unlink()
        self.folder.rmdir()

    def close(self) -> None:
        """Delete the folder if it is temporary."""
        if self._temporary is not None:
            self._temporary.cleanup()


def name_of(steps: int) -> str:
    """Return the name of the file written after `steps` steps."""
    return f"{steps:08d}"
