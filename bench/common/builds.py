"""Builds of the library to compare: of this checkout, of another commit, or in an existing environment."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

VENVS = {"openmpi": ".venv", "mpich": ".venv-mpich"}
"""The folders into which `make MPI=... install` of a checkout installs."""

ALIKE = ("python", "numpy", "mpi4py")
"""The packages, besides the MPI, whose versions must be the same in both environments."""

OF_MAKE = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES")
"""Variables by which an outer `make` would change an inner one."""

DESCRIBE = """
import json, platform
from importlib.metadata import PackageNotFoundError, version
from pycollectives._version import commit

def of(name):
    try:
        return version(name)
    except PackageNotFoundError:
        return None

names = ("numpy", "mpi4py", "openmpi", "mpich")
print(json.dumps({"commit": commit, "python": platform.python_version(), **{name: of(name) for name in names}}))
"""


class BuildError(Exception):
    """A build cannot be made or compared; the text gives the reason in one line."""


@dataclass(frozen=True)
class Build:
    python: Path
    commit: str  # the commit, followed by "-dirty" if files differed
    versions: Mapping[str, str | None]

    @property
    def programs(self) -> Path:
        return self.python.parent

    @classmethod
    def installed(cls, environment: Path) -> Build:
        """Return the build in a virtual environment."""
        python = environment.absolute() / "bin" / "python"
        try:
            printed = _run([str(python), "-I", "-c", DESCRIBE], Path("/"))
        except (OSError, subprocess.CalledProcessError):
            raise BuildError(
                f"expected a virtual environment with pycollectives, found none in {environment}"
            ) from None
        found = json.loads(printed)
        return cls(python, found.pop("commit"), found)

    @classmethod
    def of_checkout(cls, top: Path, mpi: str, constraints: Path | None = None) -> Build:
        """Run `make install` in a checkout, which does nothing if it is up to date."""
        variables = {name: value for name, value in os.environ.items() if name not in OF_MAKE}
        if constraints is not None:
            variables["PIP_CONSTRAINT"] = str(constraints)
        command = ["make", "--silent", f"MPI={mpi}", "install"]
        if subprocess.run(command, cwd=top, env=variables, stdout=subprocess.DEVNULL, check=False).returncode:
            raise BuildError(f"`make MPI={mpi} install` failed in {top}, see the messages above")
        return cls.installed(top / VENVS[mpi])

    @classmethod
    def of_commit(cls, top: Path, commit: str, folder: Path, mpi: str, like: Build) -> Build:
        """Build a commit in a worktree, which is kept, with the same versions of packages as `like`."""
        if not (folder / "Makefile").exists():
            git(top, "worktree", "prune")
            git(top, "worktree", "add", "--force", "--detach", str(folder), commit)
        constraints = folder.with_name(f"{folder.name}-{mpi}.txt")
        versions = "".join(f"{name}=={like.versions[name]}\n" for name in ("numpy", "mpi4py", mpi))
        constraints.write_text(versions, encoding="utf-8")
        return cls.of_checkout(folder, mpi, constraints)

    def require_like(self, other: Build, mpi: str) -> None:
        """Raise BuildError if the environments of the builds differ."""
        for name in (*ALIKE, mpi):
            mine, its = self.versions[name], other.versions[name]
            if mine != its:
                raise BuildError(
                    f"expected the same {name} in both environments, found {mine} in {self.programs.parent} and {its} "
                    f"in {other.programs.parent}: install the same version in both"
                )


def checkout_around(folder: Path) -> Path:
    """Return the checkout of this library that contains a folder."""
    try:
        top = Path(git(folder, "rev-parse", "--show-toplevel"))
    except BuildError:
        top = None
    if top is None or not ((top / "Makefile").is_file() and (top / "bench" / "skew.py").is_file()):
        raise BuildError(
            f"expected to be started in a git checkout of pycollectives, found none around {folder}: clone it, and run "
            "`make compare COMMIT=...` there"
        )
    return top


def resolve(top: Path, name: str) -> str:
    """Return the full hash of a commit."""
    try:
        return git(top, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    except BuildError:
        raise BuildError(f"expected a commit of {top}, found {name!r}: `git fetch`, or give its hash") from None


def git(folder: Path, *arguments: str) -> str:
    try:
        return _run(["git", *arguments], folder)
    except OSError as error:
        raise BuildError(f"git: {error.strerror}") from None
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines() or [f"ended with code {error.returncode}"]
        raise BuildError(f"`git {arguments[0]}` failed: {lines[-1]}") from None


def _run(command: list[str], folder: Path) -> str:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()
