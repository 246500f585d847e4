"""The check that a job runs before its program, with the same launcher: the number of ranks and their hosts.

If the launcher and the MPI library use different protocols (PMI-1, PMI-2, PMIx), each process becomes the only rank of
its own job. The program then computes a wrong result N times, without an error.
"""

from __future__ import annotations

import collections
import os
import platform
import sys
from importlib import metadata

from .. import __version__
from ..support.native import LIBRARY, MPI

OTHERS = ("mpi4py", "numpy", "torch")
"""Packages whose versions are reported, if installed."""


def complaint(world: MPI.Comm, expected: int) -> str | None:
    """Return an error text if the communicator does not have the expected number of ranks, otherwise None."""
    if world.size == expected:
        return None
    return (
        f"expected {expected} ranks (SLURM_NTASKS), but MPI.COMM_WORLD has {world.size}: the launcher does not start "
        f"ranks of {LIBRARY}. Choose how srun starts them (`srun --mpi=list`, then "
        "--launcher-option=--mpi=pmix or the like), or that library's own mpirun (--launcher mpirun)"
    )


def speaks(world: MPI.Comm) -> bool:
    """Whether this process prints the error: among singletons that srun started, only the first."""
    return world.rank == 0 and os.environ.get("SLURM_PROCID", "0") == "0"


def describe(world: MPI.Comm) -> list[tuple[str, str]]:
    """Return the ranks' hosts and software as names and values, on rank 0; collective."""
    hosts = world.gather(MPI.Get_processor_name())
    gpus = world.gather(os.environ.get("CUDA_VISIBLE_DEVICES"))
    if hosts is None or gpus is None:
        return []
    placed = (f"{host} {ranks}" for host, ranks in collections.Counter(hosts).items())
    seen = collections.Counter((host, own) for host, own in zip(hosts, gpus, strict=True) if own)
    visible = ", ".join(f"{host} {own} to {ranks}" for (host, own), ranks in seen.items())
    return [
        ("ranks", str(world.size)),
        ("ranks on hosts", ", ".join(placed)),
        *([("GPUs visible to ranks", visible)] if visible else []),
        ("MPI library", LIBRARY),
        ("Python", f"{platform.python_version()} ({sys.executable})"),
        ("pycollectives", __version__),
        *((name, version) for name in OTHERS if (version := _version(name))),
    ]


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
