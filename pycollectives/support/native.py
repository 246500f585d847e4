"""mpi4py's MPI and the extension, loaded together and checked.

Importing this module also imports `mpi4py.MPI`, which initializes MPI. Therefore no module of this package imports it
at the top: `import pycollectives` starts nothing. mpi4py is loaded first, so that the extension links to its libmpi.
"""

from __future__ import annotations

import hashlib
from importlib import resources

from mpi4py import MPI

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
    """Refuse an extension built from other sources, which Python may find if started in a source tree."""
    expected = hashlib.sha256(resources.files("pycollectives").joinpath("_core.pyi").read_bytes()).hexdigest()
    if built != expected:
        raise ImportError(
            "pycollectives: the extension was built from other sources than these modules: build it again "
            "(`pip install .`), or start Python outside the source tree"
        )


try:
    from .. import _core as core
except ImportError as error:
    raise ImportError(
        f"the extension pycollectives._core cannot be loaded beside mpi4py's MPI library "
        f"({LIBRARY}): {error}. If it is not there, build it (`pip install .`); "
        "if it was built for another MPI, build it again with the mpicc of the MPI that mpi4py uses."
    ) from error

_check_library(MPI.Get_library_version(), core.mpi_library_version())
_check_interface(core.interface)
