"""Whether the launcher belongs to the MPI library: a program started by another one becomes N runs of one rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# What launchers tell a rank, the innermost first: mpirun inside a SLURM job counts, not the job.
LAUNCHERS = (
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("PMI_SIZE", "PMI_RANK"),
    ("SLURM_NTASKS", "SLURM_PROCID"),
)


def launcher_mismatch(environment: Mapping[str, str], size: int) -> tuple[str, int] | None:
    """(what is wrong, this process's rank) if the launcher started another number of ranks than MPI sees."""
    for size_name, rank_name in LAUNCHERS:
        announced = environment.get(size_name, "")
        if announced.isdecimal():
            if int(announced) == size:
                return None
            rank = environment.get(rank_name, "0")
            text = (
                f"{size_name}={announced}, but MPI.COMM_WORLD has {size} rank(s): "
                "the launcher does not belong to the MPI library that mpi4py uses"
            )
            return text, int(rank) if rank.isdecimal() else 0
    return None
