"""Whether the launcher lets a job continue after a death."""

from __future__ import annotations

import os

__all__ = ["FAULT_TOLERANT", "is_fault_tolerant"]

FAULT_TOLERANT = "OMPI_MCA_mpi_ft_enable"
"""The variable by which Open MPI's launcher makes the library fault tolerant."""


def is_fault_tolerant() -> bool:
    """Whether this job continues after a death, by its launcher and its MPI."""
    from .native import MPI

    return os.environ.get(FAULT_TOLERANT, "0").lower() not in ("0", "false") and hasattr(MPI.Comm, "Get_failed")
