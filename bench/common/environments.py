"""Python environments, each with NumPy, mpi4py and one MPI from its wheel; missing ones are created."""

from __future__ import annotations

import subprocess
import sys
import venv
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from .mpis import Mpi

LIMIT = 300  # seconds for pip


class NotInstalledError(Exception):
    """The environment could not be created; the text gives the reason in one line."""


@dataclass(frozen=True)
class Environment:
    python: Path

    @property
    def programs(self) -> Path:
        return self.python.parent

    @classmethod
    def here(cls) -> Environment:
        """Return the environment of this Python, which has the library."""
        return cls(Path(sys.executable))

    @classmethod
    def of(cls, mpi: Mpi, parent: Path, say: Callable[[str], None]) -> Environment:
        """Create the environment in `parent` unless it exists; NotInstalledError if that fails.

        NumPy and mpi4py have the same versions as in this Python, so that only the MPI differs.
        """
        folder = (parent / mpi.name).resolve()
        made = cls(folder / "bin" / "python")
        packages = [mpi.wheel, *(f"{name}=={version(name)}" for name in ("numpy", "mpi4py"))]
        complete = folder / "packages.txt"  # written last
        if complete.exists() and complete.read_text(encoding="utf-8").split() == packages and made.python.exists():
            return made
        say(f"making an environment for {mpi.title} in {folder}: {' '.join(packages)}")
        venv.create(folder, clear=True, with_pip=True)
        made._install(packages)
        complete.write_text("\n".join(packages) + "\n", encoding="utf-8")
        return made

    def _install(self, packages: list[str]) -> None:
        command = [str(self.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
        except subprocess.TimeoutExpired:
            raise NotInstalledError(f"pip did not end within {LIMIT} s") from None
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            raise NotInstalledError(errors[-1] if errors else f"pip ended with code {done.returncode}")
