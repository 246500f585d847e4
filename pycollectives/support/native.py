"""mpi4py's MPI and the extension, loaded together and checked.

Importing this module also imports `mpi4py.MPI`, which initializes MPI. Therefore modules import this one only in
functions: `import pycollectives` starts nothing. mpi4py is loaded first, so that the extension links to its libmpi.

A build from source has one extension, `_core.*.so`. A wheel has one for each MPI, such as `_core.openmpi.*.so`, and the
one for mpi4py's MPI is loaded.
"""

from __future__ import annotations

import hashlib
import importlib
import re
import sys
from importlib import resources
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING

from mpi4py import MPI

if TYPE_CHECKING:
    from .. import _core as core

__all__ = ["LIBRARY", "MPI", "THREAD_LEVELS", "core"]

THREAD_LEVELS = {
    MPI.THREAD_SINGLE: "MPI_THREAD_SINGLE",
    MPI.THREAD_FUNNELED: "MPI_THREAD_FUNNELED",
    MPI.THREAD_SERIALIZED: "MPI_THREAD_SERIALIZED",
    MPI.THREAD_MULTIPLE: "MPI_THREAD_MULTIPLE",
}
"""The names of MPI's levels of thread support."""

LIBRARY = MPI.Get_library_version().split(",")[0].splitlines()[0].rstrip("\0")
"""Name and version of the MPI library."""


def _check_library(of_mpi4py: str, of_core: str) -> None:
    if of_mpi4py != of_core:
        raise ImportError(
            "pycollectives and mpi4py use different MPI libraries: "
            f"mpi4py {of_mpi4py!r}, pycollectives {of_core!r}. Install both against the same MPI: "
            "`pip install --force-reinstall --no-deps --no-cache-dir .` in a checkout, with that MPI's mpicc first on "
            "PATH, or choose mpi4py's with MPI4PY_MPIABI."
        )


def _check_interface(built: str) -> None:
    """Refuse an extension built from different sources, which Python may find if started in a source tree."""
    expected = hashlib.sha256(resources.files("pycollectives").joinpath("_core.pyi").read_bytes()).hexdigest()
    if built != expected:
        raise ImportError(
            "pycollectives: the extension was not built from the sources of these modules: rebuild it "
            "(`pip install .`), or start Python outside the source tree"
        )


EXTENSION = "pycollectives._core"


def _interface_of_mpi(vendor: str, bytes_of_comm: int) -> str:
    """Return the name of an MPI library's binary interface, which other libraries share: "openmpi" or "mpich"."""
    if vendor == "Open MPI":
        return "openmpi"
    return "mpich" if bytes_of_comm == 4 else "another"


def _find() -> tuple[bool, dict[str, Path]]:
    """Return whether there is an extension built from source, and the extensions of a wheel by their interface."""
    suffix = EXTENSION_SUFFIXES[0]
    named = re.compile(rf"_core\.([a-z]+){re.escape(suffix)}")
    for folder in map(Path, sys.modules["pycollectives"].__path__):  # the sources may come first
        if (folder / f"_core{suffix}").exists():
            return True, {}
        if variants := {found[1]: path for path in folder.iterdir() if (found := named.fullmatch(path.name))}:
            return False, variants
    return False, {}


def _load() -> None:
    """Load the extension as `EXTENSION`."""
    is_one, variants = _find()
    if is_one or not variants:
        importlib.import_module(EXTENSION)
        return
    interface = _interface_of_mpi(MPI.get_vendor()[0], MPI._sizeof(MPI.Comm))
    if interface not in variants:
        raise ImportError(f"this wheel has builds only for {' and '.join(sorted(variants))}")
    path = str(variants[interface])
    spec = spec_from_file_location(EXTENSION, path, loader=ExtensionFileLoader(EXTENSION, path))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[EXTENSION] = module
    sys.modules["pycollectives"]._core = module  # type: ignore[attr-defined]


try:
    _load()
    from .. import _core as core
except ImportError as error:
    raise ImportError(
        f"the extension pycollectives._core cannot be loaded beside mpi4py's MPI library ({LIBRARY}): {error}. If it "
        "is missing, or was built for another MPI, build it with the mpicc of the MPI that mpi4py uses: "
        "`pip install .` in a checkout, or `pip install --no-binary pycollectives pycollectives`."
    ) from error

_check_library(MPI.Get_library_version(), core.mpi_library_version())
_check_interface(core.interface)
