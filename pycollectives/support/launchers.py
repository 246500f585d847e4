"""Whether a job can continue after a rank's death."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .. import _core

FAULT_TOLERANT = "OMPI_MCA_mpi_ft_enable"
"""The variable by which Open MPI's launcher makes the library fault tolerant."""


def is_fault_tolerant() -> bool:
    """Whether the launcher and the MPI library let this job continue after a death."""
    from .native import MPI

    return os.environ.get(FAULT_TOLERANT, "0").lower() not in ("0", "false") and hasattr(MPI.Comm, "Get_failed")


def check_fault_tolerant(size: int, engine: _core.Engine | None = None) -> None:
    """Raise RuntimeError if the job ends when a rank dies, unless this rank is the only rank (`size` 1)."""
    if size == 1:
        return
    if not is_fault_tolerant() or (engine is not None and engine.acknowledge_failed() is None):
        raise RuntimeError(
            "on_failure='continue': this job ends when a rank dies; start it with Open MPI 5, with "
            f"mpirun --with-ft ulfm --mca async_mpi_finalize 1 (which sets {FAULT_TOLERANT}=1)"
        )
